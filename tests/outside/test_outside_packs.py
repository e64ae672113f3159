"""Packs from outside beside briquette's wheels, in an environment of their own: what a user of them meets.

One environment serves all tests: `story` does everything once, in order, and each test judges a part of it.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from briquette import bounds

pytestmark = [pytest.mark.slow, pytest.mark.network]

MIXED = """
title = "ends from one pack, the middle from another"
[[stage]]
use = "power2-quantizer"
[[stage]]
use = "acme-difference2:difference2"
[stage.params]
region = 64
[[stage]]
use = "byte-coder"
"""
NODES = ["power2-quantizer", "difference2", "byte-coder"]

# Compresses argv[2] with the pipeline argv[1] in every way, and decodes; prints what fused, and hashes of what came out.
RUN_ALL = """
import hashlib, json, sys
import numpy as np
import briquette as bq
pipe, x = bq.Pipeline.from_toml(sys.argv[1]), np.load(sys.argv[2])
found = []
for target, fusion in (("numpy", "off"), ("numpy", "auto"), ("host", "off"), ("host", "auto")):
    made = pipe.run(x, 1e-3, "rel", target=target, fusion=fusion)
    back = bq.decompress_run(made.archive, target=target, fusion=fusion, out=np.full_like(x, -77))
    found.append({
        "way": [target, fusion], "raw": made.raw,
        "groups": [made.plan.forward.groups, back.plan.inverse.groups],
        "launches": [made.plan.forward.launches, back.plan.inverse.launches],
        "elided": [made.plan.forward.elided, back.plan.inverse.elided],
        "archive": hashlib.sha256(made.archive).hexdigest(), "values": hashlib.sha256(back.array.tobytes()).hexdigest(),
    })
print(json.dumps(found))
"""

# Decodes argv[1], whose pack is not installed; prints what the error says.
MISSING = """
import json, sys
import briquette as bq
from briquette.errors import MissingPack
try:
    bq.decompress(open(sys.argv[1], "rb").read())
except MissingPack as error:
    print(json.dumps({"text": str(error), "stage": error.stage, "version": error.version, "distribution": error.distribution}))
"""


def digests(environment: Any) -> dict[str, str]:
    """Return the hash of every file that briquette's distributions installed."""
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment.folder)}))
    files = [path for path in site.glob("briquette*/**/*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(files) > 80
    return {str(path.relative_to(site)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="session")
def story(
    distributions: list[Any],
    outside_wheels: list[Path],
    make_environment: Callable[[str], Any],
    once: Callable[[str, Callable[[Path], None]], Path],
    bundled_fields: tuple[Path, ...],
) -> dict[str, Any]:
    """Install, use and uninstall the packs; return what was seen on the way, and the folder of the files made."""
    field = next(path for path in bundled_fields if path.stem.startswith("ocean_sst"))

    def live(folder: Path) -> None:
        environment = make_environment("outside")

        def shell(*command: str | Path, fails: bool = False) -> Any:
            return environment.run(*command, cwd=folder, fails=fails)

        def briquette(*command: str | Path) -> Any:
            return json.loads(shell("briquette", *command, "--json").stdout)

        seen: dict[str, Any] = {}
        (folder / "mixed.toml").write_text(MIXED)
        environment.pip("install", "--quiet", "--no-compile", *(dist.wheel for dist in distributions))
        before = digests(environment)
        seen["alone"] = briquette("stages")["stages"]
        environment.pip("install", "--quiet", "--no-index", *outside_wheels)
        for what in ("packs", "stages", "presets"):
            seen[what] = briquette(what)[what]
        bound = ("--eb", "1e-3", "--mode", "rel")
        seen["plan"] = briquette("plan", "mixed.toml", "--target", "host")
        seen["compress"] = briquette("compress", field, "-o", "mixed.bq", "--pipeline", "mixed.toml", *bound, "--target", "host")
        seen["decompress"] = briquette("decompress", "mixed.bq", "-o", "mixed.npy", "--target", "host")
        seen["verify"] = briquette("verify", "mixed.bq", field)
        for preset in ("second-order", "byte-granular"):
            where = ("-o", f"{preset}.bq", "--pipeline", preset, "--target", "numpy")
            seen[preset] = briquette("compress", field, *where, *bound, "--check")
            seen[f"{preset} plan"] = briquette("plan", preset, "--target", "host")
        seen["runs"] = json.loads(shell("python", "-c", RUN_ALL, "mixed.toml", field).stdout)
        environment.pip("uninstall", "--quiet", "--yes", "acme-coder")
        failed = shell("briquette", "decompress", "mixed.bq", "-o", "never.npy", fails=True)
        seen["uninstalled"] = {
            "code": failed.returncode,
            "text": failed.stderr,
            "error": json.loads(shell("python", "-c", MISSING, "mixed.bq").stdout),
            "info": briquette("info", "mixed.bq"),
            "stages": briquette("stages")["stages"],
            "other": briquette("verify", "second-order.bq", field),
        }
        seen["unchanged"] = before == digests(environment)
        (folder / "seen.json").write_text(json.dumps(seen))

    folder = once("outside-story", live)
    return {**json.loads((folder / "seen.json").read_text()), "folder": folder, "field": np.load(field)}


def named(found: list[dict[str, Any]], key: str = "name") -> dict[str, dict[str, Any]]:
    return {each[key]: each for each in found}


def test_packs_and_what_they_register_are_listed(story: dict[str, Any]) -> None:
    packs = named(story["packs"], "distribution")
    for pack, version in (("acme-difference2", "1.2.0"), ("acme-coder", "0.3.1"), ("acme-warp", "0.1.0")):
        assert (packs[pack]["version"], packs[pack]["state"]) == (version, "loaded")
    assert {"second-order", "byte-granular"} <= set(named(story["presets"]))
    stages, alone = named(story["stages"]), named(story["alone"])
    assert set(stages) - set(alone) == {
        "difference2",
        "power2-quantizer",
        "byte-coder",
        "warp-difference",
        "warp-lift",
        "warp-planes",
    }
    assert all(stages[name] == alone[name] for name in alone)
    assert (stages["difference2"]["role"], stages["difference2"]["span"]) == ("region-local", 128)
    assert (stages["byte-coder"]["role"], stages["byte-coder"]["pack"]) == ("segment-codec", "acme-coder")
    assert stages["byte-coder"]["parameters"] == {"center": 0}


def test_the_command_line_plans_one_launch_each_way(story: dict[str, Any]) -> None:
    for direction in ("compress", "decompress"):
        plan = story["plan"][direction]
        assert plan["groups"] == [NODES]
        assert plan["launches"] == 1
        assert plan["not_fused"] == []
        assert len(plan["never_allocated"]) == len(NODES) - 1


def test_files_made_on_the_command_line_keep_the_bound(story: dict[str, Any]) -> None:
    x = story["field"]
    assert story["compress"]["raw"] is False
    assert (story["compress"]["fused"], story["compress"]["launches"]) == ([NODES], 1)
    assert story["decompress"]["fused"] == [NODES]
    assert story["verify"]["ok"] is True
    report = bounds.compare(x, np.load(story["folder"] / "mixed.npy"), story["compress"]["eb"])
    assert report.ok, report


def test_their_presets_compress_and_keep_the_bound(story: dict[str, Any]) -> None:
    for preset in ("second-order", "byte-granular"):
        for direction in ("compress", "decompress"):
            assert story[f"{preset} plan"][direction]["launches"] == 1
        assert story[preset]["ratio"] > 2
        assert story[preset]["largest_error"] <= story[preset]["eb"]


def test_all_ways_give_the_same_bytes_and_fuse_as_planned(story: dict[str, Any]) -> None:
    assert len({run["archive"] for run in story["runs"]}) == 1
    assert len({run["values"] for run in story["runs"]}) == 1
    expected = {("host", "auto"): ([NODES], 1, 2), ("host", "off"): ([], 3, 0)}
    expected |= {("numpy", "auto"): ([], 0, 0), ("numpy", "off"): ([], 0, 0)}
    assert {tuple(run["way"]) for run in story["runs"]} == set(expected)
    for run in story["runs"]:
        groups, launches, elided = expected[tuple(run["way"])]
        assert run["raw"] is False
        assert run["groups"] == [groups, groups]
        assert run["launches"] == [launches, launches]
        assert [len(ports) for ports in run["elided"]] == [elided, elided]


def test_an_archive_whose_pack_is_gone_says_what_to_install(story: dict[str, Any]) -> None:
    gone = story["uninstalled"]
    assert gone["code"] == 5
    assert "pip install acme-coder" in gone["text"]
    assert "pip install acme-coder" in gone["error"]["text"]
    assert gone["error"]["distribution"] == "acme-coder"
    assert gone["error"]["stage"] in ("acme-coder:power2-quantizer", "acme-coder:byte-coder")
    assert gone["error"]["version"] == "0.3.1"
    assert not (story["folder"] / "never.npy").exists()


def test_what_does_not_need_the_missing_pack_still_works(story: dict[str, Any]) -> None:
    gone = story["uninstalled"]
    assert gone["info"]["shape"] == list(story["field"].shape)
    assert set(named(story["stages"])) - set(named(gone["stages"])) == {"power2-quantizer", "byte-coder"}
    assert gone["other"]["ok"] is True


def test_no_file_of_briquette_changed(story: dict[str, Any]) -> None:
    assert story["unchanged"] is True

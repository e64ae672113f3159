"""Fifty installed packs, one that is broken, one that takes seconds to import, one from the future, one that is hidden.

`import briquette` stays quick, what works works, and the listings say what does not. Packs are folders of metadata and modules on
the path of the programs that a test starts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

COUNT = 50
SLOW = 3.0

STAGE = '''
from dataclasses import dataclass
from briquette.stage import Stage

@dataclass(frozen=True)
class Flip(Stage):
    """Flip the bits of codes, in NumPy only."""

    name = "{stage}"

    def output_types(self, inputs):
        return {{"out": inputs["in"]}}

    def forward(self, inputs, scope):
        return {{"out": ~inputs["in"]}}

    def inverse(self, outputs, scope):
        return {{"in": ~outputs["out"]}}

PRESET = """
[[stage]]
use = "linear-quantizer"
[[stage]]
use = "{pack}:{stage}"
[[stage]]
use = "plain-rate"
"""
'''

# Times `import briquette`; prints the seconds and which modules of the packs came with it.
TIMED = """
import sys, time
begin = time.perf_counter()
import briquette
took = time.perf_counter() - begin
print(took, sorted(name for name in sys.modules if name.startswith("acme")))
"""

# Compresses and decompresses with nothing but first-party stages; prints the seconds and what was loaded of the packs.
USE = """
import json, sys, time
import numpy as np
import briquette as bq
x = np.sin(np.arange(20_000) / 40).astype(np.float32)
begin = time.perf_counter()
blob = bq.compress(x, 1e-3, target="numpy")
assert bq.verify(blob, x).ok
took = time.perf_counter() - begin
print(json.dumps([took, sorted(name for name in sys.modules if name.startswith("acme"))]))
"""


def install(site: Path, name: str, points: dict[str, str], code: str, version: str = "1.0") -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("".join(f"[briquette.{group}]\n{line}\n" for group, line in points.items()))
    (site / f"{name.replace('-', '_')}.py").write_text(code)


def module(name: str) -> str:
    return name.replace("-", "_")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the packs, for PYTHONPATH."""
    first, second = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("later")
    names = [f"acme-{i:02}" for i in range(COUNT)]
    for name in [*names, "acme-slow", "acme-future"]:
        stage = f"flip-{name.removeprefix('acme-')}"
        points = {"stages": f"{stage} = {module(name)}:Flip", "presets": f"use-{name} = {module(name)}:PRESET"}
        code = STAGE.format(stage=stage, pack=name)
        if name == "acme-slow":
            code = f"import time\ntime.sleep({SLOW})\n" + code
        if name == "acme-future":
            points["packs"] = "acme-future = acme_future:PACK"
            code += "\nPACK = {'python_api': '>=99'}\n"
        install(first, name, points, code)
    install(first, "acme-broken", {"stages": "flip-broken = acme_broken:Flip"}, "raise OSError('licence server is down')")
    install(second, names[0], {"stages": f"flip-00 = {module(names[0])}:Flip"}, "raise AssertionError('imported')", "0.1")
    return f"{first}{os.pathsep}{second}"


def python(sites: str, cwd: Path, *arguments: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BRIQUETTE_")}
    env = {**kept, "PYTHONPATH": sites, "XDG_CONFIG_HOME": str(cwd / "no-config"), **more}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=cwd, env=env, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    return done


def briquette(sites: str, cwd: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return python(sites, cwd, "-m", "briquette_cli.main", *arguments, **more)


@pytest.mark.serial
def test_import_stays_quick_and_imports_none_of_them(sites: str, tmp_path: Path) -> None:
    python(sites, tmp_path, "-c", TIMED)  # byte code and file cache
    took = []
    for _ in range(7):
        seconds, _, modules = python(sites, tmp_path, "-c", TIMED).stdout.partition(" ")
        assert modules.strip() == "[]"
        took.append(float(seconds))
    assert statistics.median(took) < 0.3, took


def test_what_is_not_used_is_not_loaded(sites: str, tmp_path: Path) -> None:
    took, modules = json.loads(python(sites, tmp_path, "-c", USE).stdout)
    assert modules == []
    assert took < SLOW


def test_names_are_listed_without_importing(sites: str, tmp_path: Path) -> None:
    begin = time.perf_counter()
    listed = json.loads(briquette(sites, tmp_path, "packs", "--no-load", "--json").stdout)["packs"]
    assert time.perf_counter() - begin < SLOW
    assert len([p for p in listed if p["distribution"].startswith("acme-")]) == COUNT + 4
    assert {p["state"] for p in listed} == {"not loaded", "shadowed"}


def test_packs_says_what_each_is(sites: str, tmp_path: Path) -> None:
    done = briquette(sites, tmp_path, "packs", "--json")
    listed = json.loads(done.stdout)["packs"]
    state = {(p["distribution"], p["version"]): (p["state"], p["reason"]) for p in listed}
    assert state["acme-49", "1.0"] == state["acme-00", "1.0"] == ("loaded", "")
    assert state["acme-slow", "1.0"][0] == "loaded"
    assert any("took 3." in note for p in listed if p["distribution"] == "acme-slow" for note in p["notes"])
    assert state["acme-broken", "1.0"] == ("broken", "stage 'flip-broken': OSError: licence server is down")
    assert state["acme-future", "1.0"][0] == "incompatible"
    assert "python_api >=99 (this briquette has 1)" in state["acme-future", "1.0"][1]
    assert state["acme-00", "0.1"][0] == "shadowed"
    assert "1.0" in state["acme-00", "0.1"][1]
    origins = {p["distribution"]: p["location"] for p in listed if p["state"] == "loaded"}
    assert origins["acme-07"] == sites.partition(os.pathsep)[0]
    table = briquette(sites, tmp_path, "packs", COLUMNS="400").stdout
    for word in ("acme-49", "broken", "licence server is down", "incompatible", "shadowed", origins["acme-07"]):
        assert word in table


def test_stages_lists_all_that_work_and_why_others_do_not(sites: str, tmp_path: Path) -> None:
    listed = {s["name"]: s for s in json.loads(briquette(sites, tmp_path, "stages", "--json").stdout)["stages"]}
    assert {f"flip-{i:02}" for i in range(COUNT)} <= set(listed)
    flip = listed["flip-33"]
    assert (flip["pack"], flip["role"], flip["targets"], flip["error"]) == ("acme-33", "unfusable", ["numpy"], None)
    assert "int32" in flip["dtypes"]
    assert "licence server is down" in listed["flip-broken"]["error"]
    lorenzo = listed["lorenzo-1d"]
    assert {"numpy", "host", "cuda"} <= set(lorenzo["targets"])
    assert lorenzo["dtypes"] == ["int16", "int32", "int64", "uint16", "uint32", "uint64"]
    assert {"numpy", "host", "cuda"} <= set(listed["adaptive-lorenzo"]["targets"])


def test_they_compress_and_decompress(sites: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.sin(np.arange(20_000) / 40).astype(np.float32))
    for pack in ("acme-00", "acme-49"):
        briquette(sites, tmp_path, "compress", "x.npy", "--eb", "1e-3", "--pipeline", f"use-{pack}", "--force", "--check")
        stages = json.loads(briquette(sites, tmp_path, "info", "x.npy.bq", "--json").stdout)["stages"]
        assert (stages[1]["stage"], stages[1]["pack_version"]) == (f"{pack}:flip-{pack[5:]}", "1.0")


@pytest.mark.parametrize("how", ["environment", "file"])
def test_a_pack_is_disabled_by_the_environment_or_the_configuration_file(how: str, sites: str, tmp_path: Path) -> None:
    if how == "environment":
        more = {"BRIQUETTE_DISABLE_PACKS": "Acme_Slow, acme-broken"}
    else:
        (tmp_path / "config" / "briquette").mkdir(parents=True)
        (tmp_path / "config" / "briquette" / "config.toml").write_text('disable_packs = ["acme-slow", "acme-broken"]\n')
        more = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    begin = time.perf_counter()
    listed = {s["name"] for s in json.loads(briquette(sites, tmp_path, "stages", "--json", **more).stdout)["stages"]}
    assert time.perf_counter() - begin < SLOW
    assert "flip-01" in listed
    assert not {"flip-slow", "flip-broken"} & listed
    packs = json.loads(briquette(sites, tmp_path, "packs", "--json", **more).stdout)["packs"]
    for pack in packs:
        if pack["distribution"] in ("acme-slow", "acme-broken"):
            assert pack["state"] == "disabled"
            assert "disable_packs" in pack["reason"]
    said = briquette(sites, tmp_path, "plan", "use-acme-slow", code=5, **more).stderr
    assert "disabled" in said
    assert "acme-slow" in said

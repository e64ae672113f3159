"""The wheels are what users get: they hold every file, and work in an empty environment, together and alone."""

from __future__ import annotations

import email
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.network]

PNG = b"\x89PNG\r\n\x1a\n"

# Prints the top-level modules that an import brought in.
IMPORTED = """
import json, sys
before = set(sys.modules)
import briquette
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""

# Prints the distributions that register something for briquette.
REGISTERED = """
import json
from importlib.metadata import distributions
print(json.dumps(sorted({d.name for d in distributions() for e in d.entry_points if e.group.startswith("briquette.")})))
"""

LOAD_ENTRY_POINTS = """
import sys
from importlib.metadata import distribution
for entry in distribution(sys.argv[1]).entry_points:
    entry.load()
"""

# Prints each target but the reference and why it cannot run here, null where it can.
TARGETS = """
import json
from briquette import discovery
from briquette.selection import why_unavailable
print(json.dumps({target.name: why_unavailable(target) for target in discovery.registry().targets()}))
"""

#: first-party distributions that the meta distribution offers as extras and does not require
OFFERED = {"briquette-target-cuda"}
#: the harness that another one builds on: its survey, its values kept aside and its runs are that one's
BUILDS_ON = {"briquette-chunk": ("briquette-warp",), "briquette-conformance": ("briquette-warp",)}

#: brought in by nothing that `import briquette` needs: GPU libraries, compilers and what drives them
HEAVY = {
    "cffi",
    "cuda",
    "cupy",
    "distutils",
    "jax",
    "matplotlib",
    "numba",
    "nvidia",
    "pybind11",
    "setuptools",
    "torch",
    "ziglang",
}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_there_is_a_wheel_of_every_distribution(distributions: list[Any], repo_root: Path) -> None:
    projects = {
        path.parent
        for pattern in ("", "core/", "harnesses/*/", "plugins/*/")
        for path in repo_root.glob(pattern + "pyproject.toml")
    }
    assert {dist.folder for dist in distributions} == projects
    assert {"briquette", "briquette-core", "briquette-warp", "briquette-cli"} <= {dist.name for dist in distributions}


def test_wheels_hold_every_file_of_their_packages(distributions: list[Any]) -> None:
    missing = []
    for dist in distributions:
        inside = names(dist.wheel)
        for package in dist.packages:
            files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
            assert package / "py.typed" in files, f"{package.name} has no py.typed"
            missing += [f"{dist.name}: {name}" for path in files if (name := str(path.relative_to(package.parent))) not in inside]
    assert not missing, "files of the source that the wheels lack (package data?):\n" + "\n".join(missing)


def test_wheels_hold_device_policies_and_presets(distributions: list[Any]) -> None:
    everything = [name for dist in distributions for name in names(dist.wheel)]
    assert [name for name in everything if name.endswith(".cuh")], "no wheel holds a .cuh file"
    assert [name for name in everything if re.search(r"/presets/[^/]+\.toml$", name)], "no wheel holds a preset"


def test_wheels_hold_only_their_packages_and_the_licence(distributions: list[Any]) -> None:
    for dist in distributions:
        own = {package.name for package in dist.packages}
        tops = {name.split("/")[0] for name in names(dist.wheel)}
        assert {top for top in tops if not top.endswith(".dist-info")} == own
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names(dist.wheel)), f"{dist.name} has no licence"


def test_packs_depend_on_core_and_on_no_other_pack(distributions: list[Any]) -> None:
    for dist in distributions:
        with zipfile.ZipFile(dist.wheel) as archive:
            (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            requires = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist") or []
        first_party = [line for line in requires if line.startswith("briquette")]
        names_of = {re.split(r"[^A-Za-z0-9-]", line)[0] for line in first_party if "extra ==" not in line}
        every = {other.name for other in distributions} - {"briquette"} - OFFERED
        expected = every if dist.name == "briquette" else {"briquette-core", *BUILDS_ON.get(dist.name, ())} - {dist.name}
        assert names_of == expected, f"{dist.name} depends on {sorted(names_of)}"
        unbounded = [line for line in first_party if "<" not in line]
        assert not unbounded, f"{dist.name} has dependencies without an upper limit: {unbounded}"


def test_the_gpu_target_is_an_extra_of_the_meta_distribution(distributions: list[Any]) -> None:
    (meta,) = [dist.wheel for dist in distributions if dist.name == "briquette"]
    with zipfile.ZipFile(meta) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        message = email.message_from_bytes(archive.read(metadata))
    assert {"cuda12", "cuda13"} <= set(message.get_all("Provides-Extra") or [])
    offered = {line.split(";")[0].split("<")[0]: line for line in message.get_all("Requires-Dist") or [] if "target-cuda" in line}
    assert set(offered) == {"briquette-target-cuda[cuda12]", "briquette-target-cuda[cuda13]"}
    for extra in ("cuda12", "cuda13"):
        assert re.search(f"extra == .{extra}.$", offered[f"briquette-target-cuda[{extra}]"])


def test_the_gpu_target_without_cuda_packages_is_listed_as_unavailable_in_one_line(
    installed: Any, distributions: list[Any], make_environment: Callable[[str], Any], tmp_path: Path
) -> None:
    wheels = {dist.name: dist.wheel for dist in distributions}
    alone = make_environment("gpu-target-alone")
    alone.pip("install", "--quiet", wheels["briquette-core"], wheels["briquette-target-cuda"])
    for environment in (alone, installed):
        done = environment.run("python", "-c", TARGETS, cwd=tmp_path)
        why = json.loads(done.stdout)["cuda"]
        assert why.startswith("the CUDA packages are not installed; pip install 'briquette-target-cuda[cuda13]'")
        assert "\n" not in why
        assert done.stderr == ""
    listed = installed.run("briquette", "targets", "--json", cwd=tmp_path)
    found = {target["name"]: target for target in json.loads(listed.stdout)["targets"]}
    assert found["cuda"]["unavailable"] == why
    assert not found["cuda"]["default"]


def test_import_brings_in_no_pack_no_gpu_library_and_no_compiler(installed: Any, tmp_path: Path) -> None:
    done = installed.run("python", "-c", IMPORTED, cwd=tmp_path)
    brought = set(json.loads(done.stdout))
    assert "briquette" in brought
    assert not brought & HEAVY
    assert not {name for name in brought if name.startswith("briquette_")}
    assert done.stderr == ""


def test_demo_runs_from_the_wheels_in_another_folder(installed: Any, tmp_path: Path) -> None:
    done = installed.run("briquette", "demo", cwd=tmp_path)
    for preset in ("fast", "planes", "zigzag", "adaptive"):
        assert preset in done.stdout
    pictures = list(tmp_path.rglob("*.png"))
    assert len(pictures) == 1
    assert pictures[0].read_bytes().startswith(PNG)


def test_command_line_round_trip_from_the_wheels(installed: Any, tmp_path: Path, bundled_fields: tuple[Path, ...]) -> None:
    for field in bundled_fields:
        packed = field.stem + ".bq"
        installed.run("briquette", "compress", field, "-o", packed, "--eb", "1e-3", "--mode", "rel", cwd=tmp_path)
        assert 0 < (tmp_path / packed).stat().st_size < field.stat().st_size
        installed.run("briquette", "verify", packed, field, cwd=tmp_path)


def test_each_pack_can_be_installed_alone_and_uninstalled_alone(
    distributions: list[Any], make_environment: Callable[[str], Any], tmp_path: Path
) -> None:
    environment = make_environment("alone")
    wheels = {dist.name: dist for dist in distributions}
    core = wheels.pop("briquette-core")
    wheels.pop("briquette")
    environment.pip("install", "--quiet", core.wheel)
    for name, dist in wheels.items():
        others = [wheels[other].wheel for other in BUILDS_ON.get(name, ())]
        environment.pip("install", "--quiet", dist.wheel, *others)  # core is there; what else it needs comes from the index
        environment.pip("check")
        packages = [package.name for package in dist.packages]
        for package in packages:
            environment.run("python", "-c", f"import briquette, {package}", cwd=tmp_path)
        registered = set(json.loads(environment.run("python", "-c", REGISTERED, cwd=tmp_path).stdout))
        assert registered <= {name, *BUILDS_ON.get(name, ())}
        environment.run("python", "-c", LOAD_ENTRY_POINTS, name, cwd=tmp_path)
        environment.pip("uninstall", "--quiet", "--yes", name, *BUILDS_ON.get(name, ()))
        environment.run("python", "-c", "import briquette", cwd=tmp_path)
        environment.run("python", "-c", f"import {packages[0]}", cwd=tmp_path, fails=True)

"""Every policy of every installed pack compiles for GPUs with NVRTC, and one that does not is reported with its pack.

NVRTC lives in an environment of its own, `.venv-nvrtc`, which ``make test-nvrtc`` makes (`BRIQUETTE_NVRTC_VENV`: another folder).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
#: stage, its role's geometries as lanes x elements, and each with the types the stage takes
CODES = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
WIDE = ("1x256", "8x32", "32x8")
NARROW = ("1x32", "8x4", "32x1")
LINEAR = ("float16 int32", "bfloat16 int32", "float32 int32", "float64 int64")
EXPECTED: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("integer-quantizer", ""): (
        ("int8 int16", "uint8 int16", *(f"{c} {c.removeprefix('u')}" for c in CODES)),
        ("1x32", "1x4"),
    ),
    ("linear-quantizer", "auto"): (LINEAR, ("1x32", "1x4")),
    ("linear-quantizer", "int16"): (tuple(f"{f} int16" for f in ("float16", "bfloat16", "float32", "float64")), ("1x32", "1x4")),
    ("linear-quantizer", "int32"): (tuple(f"{f} int32" for f in ("float16", "bfloat16", "float32", "float64")), ("1x32", "1x4")),
    ("adaptive-lorenzo", "256"): (tuple(f"{c} {c}" for c in CODES), WIDE[1:]),
    ("log-quantizer", ""): (("float32 int32", "float64 int64"), ("1x32", "1x4")),
    ("in-place-quantizer", ""): (
        ("float16 int16", "bfloat16 int16", "float32 int32", "float64 int64"),
        ("1x32", "1x4"),
    ),
    ("in-place-log-quantizer", ""): (("float32 int32", "float64 int64"), ("1x32", "1x4")),
    ("masked-quantizer", "auto"): (LINEAR, ("1x32", "1x4")),
    ("masked-quantizer", "auto1e+20"): (LINEAR, ("1x32", "1x4")),
    ("masked-log-quantizer", ""): (("float32 int32", "float64 int64"), ("1x32", "1x4")),
    ("masked-log-quantizer", "1e+20"): (("float32 int32", "float64 int64"), ("1x32", "1x4")),
    ("forward-fill", "256"): (tuple(f"{c} {c}" for c in CODES[::2]), WIDE),
    ("lorenzo-1d", "256"): (tuple(f"{c} {c}" for c in CODES), WIDE),
    ("lorenzo-1d", "1024"): (tuple(f"{c} {c}" for c in CODES), ("32x32",)),
    ("lorenzo-1d", "32"): (tuple(f"{c} {c}" for c in CODES), NARROW),
    ("lorenzo-1d", "8"): (tuple(f"{c} {c}" for c in CODES), ("1x32", "8x1")),
    ("zigzag", ""): (tuple(f"{c} u{c}" for c in CODES[::2]), NARROW),
    ("negabinary", ""): (tuple(f"{c} u{c.lstrip('u')}" for c in CODES), NARROW),
    ("plain-rate", "32"): (tuple(f"{c} {c}" for c in CODES), NARROW),
    ("plain-rate", "256"): (tuple(f"{c} {c}" for c in CODES), WIDE[1:]),
    ("adaptive-bitplane", "32"): (tuple(f"{c} {c}" for c in CODES), NARROW),
    ("tiled-lorenzo", "0"): (tuple(f"{c} {c}" for c in CODES), ("1x64", "8x8", "32x2")),
    ("outlier", "32"): (tuple(f"{c} {c}" for c in CODES), NARROW),
    ("outlier", "64"): (tuple(f"{c} {c}" for c in CODES), ("1x64", "8x8", "32x2")),
    ("adaptive-bitplane", "256"): (tuple(f"{c} {c}" for c in CODES), WIDE[1:]),
}

BROKEN_STAGE = """
from dataclasses import dataclass
from typing import ClassVar
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.stage import Stage

@dataclass(frozen=True)
class Broken(Stage):
    name: ClassVar[str] = "broken-shift"
    def output_types(self, inputs):
        return {"out": inputs["in"]}
    def fusion_spec(self):
        return FusionSpec(FusionAccess.REGION_LOCAL, 32)
    def fused_op(self):
        return FusedOp("warp-register", "BrokenShift", "acme_broken/cuda/shift.cuh", dtypes=("int32",))
"""
BROKEN_POLICY = """#pragma once
#include <briquette_warp/cuda/group.cuh>
namespace acme_broken {
struct BrokenShift {
  template <class T, class G, int E> __device__ static void forward(T (&c)[E], G g) { c[0] = g.no_such_collective(c[0]); }
  template <class T, class G, int E> __device__ static void inverse(T (&c)[E], G) { BODY }
};
}  // namespace acme_broken
"""
#: 300 values are read in order before the first of them is written in reverse: no GPU has registers for them
SPILLS = """
    volatile T held[300];
    T x[300];
    for (int m = 0; m < 300; m++) held[m] = c[m % E];
    BRIQUETTE_UNROLL
    for (int m = 0; m < 300; m++) x[m] = held[m];
    BRIQUETTE_UNROLL
    for (int m = 0; m < 300; m++) held[m] = x[299 - m];
    c[0] = held[c[0] & 255];
"""


def report(python: Path, repo_root: Path, *options: str, path: Path | None = None) -> tuple[int, str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    command = [str(python), str(repo_root / "tools" / "nvrtc_report.py"), *options]
    done = subprocess.run(command, cwd=repo_root, env=environment, text=True, capture_output=True, check=False, timeout=900)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
def test_every_policy_compiles_at_every_geometry(nvrtc_python: Path, repo_root: Path, tmp_path: Path) -> None:
    made = tmp_path / "report.json"
    status, out, errors = report(nvrtc_python, repo_root, "--variants", "tests/nvrtc/variants.json", "--json", str(made))
    print(out)
    assert status == 0, errors
    found = json.loads(made.read_text(encoding="utf-8"))
    assert found["problems"] == []
    left_out = {line.partition(" of ")[0] for line in found["left_out"]}
    assert {
        "bit-shuffle",
        "chunk-difference",
        "difference",
        "lorenzo-nd",
        "tile-order",
    } <= left_out  # which are for another harness, or for none
    assert not left_out & {stage for stage, _ in EXPECTED}
    assert "-fmad=false" in found["flags"]
    assert not [flag for flag in found["flags"] if "fast" in flag]
    seen = [key(result) for result in found["results"]]
    wanted = {
        (stage, parameter, *types.split(), geometry, arch)
        for (stage, parameter), (every, geometries) in EXPECTED.items()
        for types in every
        for geometry in geometries
        for arch in ARCHITECTURES
    }
    assert len(seen) == len(set(seen))
    assert set(seen) == wanted
    for result in found["results"]:
        assert set(result["usage"]) == {"forward", "inverse"}, result
        for usage in result["usage"].values():
            assert 0 < usage["registers"] <= 255
            assert usage["shared"] == 0
            assert result["elements"] > 32 or usage["spill_stores"] == usage["spill_loads"] == usage["stack"] == 0, result


@pytest.mark.thorough
def test_kernels_of_chains_with_a_selector_stay_in_registers(nvrtc_python: Path, repo_root: Path) -> None:
    """Four blocks of 256 lanes share a multiprocessor's registers where codes have 32 bits, two or three where they have 64."""
    script = repo_root / "tests" / "nvrtc" / "chain_usage.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(nvrtc_python), str(script), *ARCHITECTURES]
    done = subprocess.run(command, cwd=repo_root, env=environment, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found = [u for u in json.loads(done.stdout) if u["kernel"] in ("briquette_forward", "briquette_inverse")]
    assert len(found) == 9 * 2 * len(ARCHITECTURES)
    for usage in found:
        wide = "float64" in usage["chain"]
        few = 16 if usage["chain"].startswith("tiled") else 0  # a word or two of a lane, on sm_100
        assert usage["spill_stores"] + usage["spill_loads"] <= (256 if wide else few), usage
        assert usage["registers"] <= (128 if wide else 64), usage


@pytest.mark.thorough
def test_kernels_on_chunks_stay_in_registers(nvrtc_python: Path, repo_root: Path) -> None:
    """Five blocks of 256 lanes share a multiprocessor's registers, and at least four its shared memory; some ten values spill.

    Measured: with 64 registers nothing spills, and kernels on 32-bit elements take 3 to 10 % longer (docs/benchmarks.md).
    """
    script = repo_root / "tests" / "nvrtc" / "chunk_usage.py"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(nvrtc_python), str(script), *ARCHITECTURES]
    done = subprocess.run(command, cwd=repo_root, env=environment, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found = [u for u in json.loads(done.stdout) if u["kernel"] in ("briquette_forward", "briquette_inverse")]
    assert len(found) >= 4 * 2 * len(ARCHITECTURES)
    for usage in found:
        spilled = usage["spill_stores"] + usage["spill_loads"]
        assert spilled <= (512 if "pwrel" in usage["chain"] else 160 if "32" in usage["chain"] else 0), usage
        assert usage["registers"] <= 48, usage
        assert usage["shared"] + 32768 + 1024 <= 57 * 1024, usage  # of 228 KiB


def key(result: dict[str, Any]) -> tuple[str, ...]:
    parameter = "".join(str(value) for value in result["parameters"].values())
    geometry = f"{result['lanes']}x{result['elements']}"
    return (result["stage"], parameter, result["dtype"], result["codes"], geometry, result["arch"])


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder to put on the path, with a pack in it whose policy calls what no lane group has."""
    package, info = tmp_path / "acme_broken", tmp_path / "acme_broken-1.0.dist-info"
    (package / "cuda").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "stage.py").write_text(BROKEN_STAGE)
    (package / "cuda" / "shift.cuh").write_text(BROKEN_POLICY.replace("BODY", ""))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[briquette.stages]\nbroken-shift = acme_broken.stage:Broken\n")
    (info / "RECORD").write_text("acme_broken/__init__.py,,\nacme_broken/cuda/shift.cuh,,\n")
    return tmp_path


def test_a_broken_policy_is_reported_with_its_pack(nvrtc_python: Path, repo_root: Path, broken: Path) -> None:
    status, out, errors = report(nvrtc_python, repo_root, "--arch", "sm_90", "--only", "broken-shift", path=broken)
    assert status == 1
    assert out.splitlines()[-1] == "3 compilations of 1 policies, 3 failures"
    for geometry in NARROW:
        where = f"pack acme-broken: broken-shift() of int32 at {geometry} for sm_90"
        assert f"{where}: error in <acme_broken/cuda/shift.cuh> of acme-broken:" in errors
    assert "no_such_collective" in errors


def test_a_policy_that_spills_a_small_array_is_reported(nvrtc_python: Path, repo_root: Path, broken: Path) -> None:
    header = broken / "acme_broken" / "cuda" / "shift.cuh"
    header.write_text(BROKEN_POLICY.replace("g.no_such_collective(c[0])", "c[0]").replace("BODY", SPILLS))
    status, _, errors = report(nvrtc_python, repo_root, "--arch", "sm_90", "--only", "broken-shift", path=broken)
    assert status == 1
    for geometry in NARROW:
        assert f"pack acme-broken: broken-shift() of int32 at {geometry} for sm_90: it spills registers" in errors

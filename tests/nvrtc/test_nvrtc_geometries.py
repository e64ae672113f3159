"""Every geometry that measuring may choose compiles for GPUs and keeps to its share of registers; one never spills.

NVRTC lives in an environment of its own, see `test_nvrtc`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHAINS = ("fast float32", "planes float32", "fast float64")
#: registers of a multiprocessor, lanes of a block, and the steps in which registers are given out
REGISTERS, LANES, STEP = 65_536, 256, 8


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_geometry_compiles_within_its_registers(repo_root: Path, arch: str) -> None:
    if sys.platform != "linux":
        pytest.skip(f"NVRTC's wheels are for Linux, not {sys.platform}")
    python = Path(repo_root, os.environ.get("BRIQUETTE_NVRTC_VENV") or ".venv-nvrtc", "bin", "python")
    if not python.exists():
        if os.environ.get("BRIQUETTE_NVRTC_VENV"):
            pytest.fail(f"BRIQUETTE_NVRTC_VENV names {python.parents[1]}, which has no bin/python", pytrace=False)
        pytest.skip("no .venv-nvrtc with NVRTC in it: run make test-nvrtc once")
    script = repo_root / "tests" / "nvrtc" / "compile_geometries.py"
    done = subprocess.run(
        [python, script, arch, *" ".join(CHAINS).split()], cwd=repo_root, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    offered: dict[str, list[int]] = {}
    for each in found:
        offered.setdefault(each["chain"], []).append(each["blocks"])
    for each in found:
        print(each)
        room = REGISTERS // (each["blocks"] * LANES) // STEP * STEP
        assert 0 < each["registers"] <= room, each
        assert not (each["spills"] and each["blocks"] == min(offered[each["chain"]])), each
    assert len(offered) == 2 * len(CHAINS)
    assert all(counts[0] == (3 if "float64" in chain else 5) and len(set(counts)) >= 2 for chain, counts in offered.items()), (
        offered
    )

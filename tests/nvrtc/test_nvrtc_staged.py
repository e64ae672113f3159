"""Kernels that stages bring themselves compile for GPUs with NVRTC, with next to no spills."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
#: stage -> its kernels
EXPECTED = {
    "huffman": {"briquette_survey", "briquette_encode", "briquette_gather", "briquette_decode"},
    "run-length": {"briquette_encode", "briquette_gather", "briquette_decode"},
}
TYPES = 8


@pytest.mark.slow
def test_kernels_of_stages_compile_and_hardly_spill(nvrtc_python: Path, repo_root: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(nvrtc_python), str(Path(__file__).with_name("staged_usage.py")), *ARCHITECTURES]
    done = subprocess.run(command, cwd=repo_root, env=environment, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for stage, kernels in EXPECTED.items():
        mine = [u for u in found if u["stage"] == stage]
        assert {u["kernel"] for u in mine} == kernels
        assert len(mine) >= len(kernels) * TYPES * len(ARCHITECTURES)
    for usage in found:
        assert usage["registers"] <= 64, usage
        # 64-bit elements cost one register too many on one architecture
        assert usage["spill_stores"] + usage["spill_loads"] <= 16, usage

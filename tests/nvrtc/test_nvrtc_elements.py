"""Whole kernels with policies in the element form compile for GPUs, alone and mixed with others, and stay in registers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ARCHITECTURES = ("sm_80", "sm_90")
CHAINS = 6


@pytest.mark.slow
def test_chains_in_the_element_form_compile_without_spills(nvrtc_python: Path, repo_root: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(repo_root / "tests/outside/packs/acme-warp/src")
    command = [str(nvrtc_python), str(Path(__file__).with_name("whole_kernels.py")), *ARCHITECTURES]
    done = subprocess.run(command, cwd=repo_root, env=environment, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for arch in ARCHITECTURES:
        kernels = [each["kernel"] for each in found if each["arch"] == arch]
        assert kernels.count("briquette_forward") == kernels.count("briquette_inverse") == CHAINS
    for each in found:
        assert each["spill_stores"] == each["spill_loads"] == each["stack"] == 0 or each["kernel"] in (
            "briquette_survey",
            "briquette_aside",
        ), each

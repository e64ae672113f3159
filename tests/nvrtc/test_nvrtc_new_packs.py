"""The policies that `briquette new-pack` writes compile for GPUs, in the whole kernels of their presets."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from briquette_cli.newpack import ROLES, write

ARCHITECTURE = "sm_90"
FUSED = [role for role in ROLES if role != "staged"]


@pytest.mark.slow
def test_policies_of_every_role_compile_in_whole_kernels(nvrtc_python: Path, repo_root: Path, tmp_path: Path) -> None:
    for role in ROLES:
        write(f"acme-{role}", role, tmp_path / f"acme-{role}")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(nvrtc_python), str(Path(__file__).with_name("new_packs.py")), str(tmp_path), ARCHITECTURE]
    done = subprocess.run(command, cwd=repo_root, env=environment, text=True, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for role in FUSED:
        kernels = [each["kernel"] for each in found if each["pack"] == f"acme-{role}"]
        assert {"briquette_forward", "briquette_inverse"} <= set(kernels), (role, kernels)
    assert {each["pack"] for each in found} == {f"acme-{role}" for role in FUSED}
    wasteful = [each for each in found if each["kernel"] == "briquette_inverse" and each["spill_stores"] + each["spill_loads"]]
    assert not wasteful  # examples are read, not raced; forward passes may spill a little

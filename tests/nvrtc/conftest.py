"""The environment that NVRTC is in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def nvrtc_python(repo_root: Path) -> Path:
    if sys.platform != "linux":
        pytest.skip(f"NVRTC's wheels are for Linux, not {sys.platform}")
    named = os.environ.get("BRIQUETTE_NVRTC_VENV")
    python = Path(repo_root, named or ".venv-nvrtc", "bin", "python")
    if not python.exists():
        if named:
            pytest.fail(f"BRIQUETTE_NVRTC_VENV names {named}, which has no bin/python", pytrace=False)
        pytest.skip("no .venv-nvrtc with NVRTC in it: run make test-nvrtc once")
    return python

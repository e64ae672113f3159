"""The example packs, installed beside this environment; modules of this folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def example_packs(once: Callable[[str, Callable[[Path], None]], Path], repo_root: Path) -> Path:
    """A folder with the packs of tests/outside/packs, for PYTHONPATH."""

    def install(folder: Path) -> None:
        skipped = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(repo_root / "tests" / "outside" / "packs", folder / "source", ignore=skipped)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        projects = sorted(path.parent for path in folder.glob("source/*/pyproject.toml"))
        command = [*pip, "--no-build-isolation", "--target", folder / "site", *projects]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    return once("docs-packs", install) / "site"

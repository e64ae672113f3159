"""Tests marked `gpu` are skipped by name with a reason, and are never skipped where a GPU is promised."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MARKED = """
import pytest

@pytest.mark.gpu
def test_on_a_gpu(): raise AssertionError("ran")

def test_anywhere(): pass
"""


def run(repo_root: Path, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the two tests with the workspace's settings and hooks, all GPUs hidden."""
    (folder / "test_marked.py").write_text(MARKED)
    command = [sys.executable, "-m", "pytest", "-c", repo_root / "pyproject.toml", "--rootdir", folder, "-p", "conftest"]
    command += ["-p", "no:cacheprovider", *arguments, folder / "test_marked.py"]
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "BRIQUETTE_"))}
    env = {**keep, "PYTHONPATH": str(repo_root), "CUDA_VISIBLE_DEVICES": "", **variables}
    return subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=False, timeout=120)


def test_without_a_gpu_they_are_skipped_with_the_reason(repo_root: Path, tmp_path: Path) -> None:
    done = run(repo_root, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "test_marked.py" in done.stdout
    assert "needs a GPU: " in done.stdout


def test_where_a_gpu_is_promised_the_run_fails(repo_root: Path, tmp_path: Path) -> None:
    done = run(repo_root, tmp_path, "-m", "gpu", BRIQUETTE_REQUIRE_GPU="1")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "1 tests need a GPU: " in done.stderr


def test_a_run_that_leaves_them_out_asks_for_no_gpu(repo_root: Path, tmp_path: Path) -> None:
    done = run(repo_root, tmp_path, "-m", "not gpu", BRIQUETTE_REQUIRE_GPU="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 deselected" in done.stdout

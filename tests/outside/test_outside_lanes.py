"""The outside packs' policies give the same codes and words at every lane geometry, emulated by threads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def test_policies_do_not_depend_on_the_geometry(repo_root: Path, outside_sources: list[Path], tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler: set CXX, or install c++, g++ or clang++")
    program = tmp_path / "lanes"
    includes = [f"-I{folder}" for folder in (repo_root / "harnesses/warp/src", *outside_sources)]
    source = Path(__file__).with_name("lanes.cpp")
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-pthread"]
    command = [*compiler.split(), *flags, *includes, str(source), "-o", str(program)]
    built = subprocess.run(command, text=True, capture_output=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert done.stdout == "297 checks, 0 failures\n"

"""Packs that are not briquette's: their wheels, and the wheels installed where the tests' own process finds them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from briquette import discovery

PACKS = Path(__file__).resolve().parent / "packs"


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=300)
    if done.returncode:
        pytest.fail(f"{' '.join(command)} exited {done.returncode}:\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.fixture(scope="session")
def outside_wheels(once: Callable[[str, Callable[[Path], None]], Path]) -> list[Path]:
    """The wheels of the packs, built from a copy so that no build folder is left in the source."""

    def build(folder: Path) -> None:
        shutil.copytree(PACKS, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
        sources = sorted(path.parent for path in folder.glob("source/*/pyproject.toml"))
        _pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, *sources)

    return sorted(once("outside-wheels", build).glob("*.whl"))


@pytest.fixture(scope="module")
def outside(outside_wheels: list[Path], once: Callable[[str, Callable[[Path], None]], Path]) -> Iterator[discovery.Registry]:
    """The registry of this process with the packs on `sys.path`, as installed wheels; taken away after the module."""
    folder = once("outside-site", lambda site: _pip("install", "--no-deps", "--target", site / "packages", *outside_wheels))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "packages"))
        with discovery.use(discovery.Registry.scan()) as registry:
            yield registry
    theirs = {path.parent.name for path in PACKS.glob("*/src/*/__init__.py")}
    for name in [name for name in sys.modules if name.partition(".")[0] in theirs]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def outside_sources() -> list[Path]:
    """The folders that hold the packs' import packages."""
    return sorted(PACKS.glob("*/src"))


def pytest_make_parametrize_id(config: Any, val: Any, argname: str) -> str | None:
    """Name a chain by its stages."""
    return "+".join(entry[0] for entry in val) if argname == "chain" else None

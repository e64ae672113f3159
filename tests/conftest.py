"""Wheels of every distribution, and empty environments to install them in."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_PATTERNS = shutil.ignore_patterns(
    ".git", ".venv*", "*.egg-info", "build", "dist", "__pycache__", ".*_cache", "demo-out", "site", "tests"
)


def ignored(folder: str, names: list[str]) -> set[str]:
    """Return what is left out of a copy of the source: what others made, and tests, but for those that a package ships."""
    found = set(_PATTERNS(folder, names))
    return found - {"tests"} if "src" in Path(folder).parts else found


@dataclass(frozen=True)
class Distribution:
    """One distribution of the workspace: its name, its folder and the wheel that was built from it."""

    name: str
    folder: Path
    wheel: Path

    @property
    def packages(self) -> list[Path]:
        """The import packages' folders; none for the meta distribution."""
        return sorted(path.parent for path in self.folder.glob("src/*/__init__.py"))


@dataclass(frozen=True)
class Environment:
    """A virtual environment that does not see the one the tests run in."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def pip(self, *arguments: str | Path) -> str:
        """Run the tests' own pip on the environment, which needs none of its own; return what it printed."""
        return _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python, *arguments]).stdout

    def run(self, *command: str | Path, cwd: Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in `cwd`, with a home of its own and none of the caller's Python variables.

        The test fails where the program does, or where it does not and `fails` is set.
        """
        home = self.folder.parent / "home"
        home.mkdir(exist_ok=True)
        dropped = ("PYTHON", "BRIQUETTE_", "XDG_CACHE", "VIRTUAL_")
        keep = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        bin_ = self.folder / "bin"
        program = shutil.which(str(command[0]), path=str(bin_))
        assert program, f"{command[0]} is not installed in {self.folder}"
        variables = {**keep, "HOME": str(home), "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        return _run([program, *command[1:]], cwd=cwd, env=variables, fails=fails)


def _run(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=env, text=True, capture_output=True, check=False, timeout=600)
    if (done.returncode != 0) is not fails:
        pytest.fail(f"{' '.join(words)} exited {done.returncode}:\n{done.stdout}{done.stderr}", pytrace=False)
    return done


def _once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that `make` filled once in this test run, whichever of the parallel workers came first."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the run's folder, which the workers share
    folder, done = base / name, base / f"{name}.done"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Return a function that makes the folder `name`, filled by `make` once in this test run; parallel workers share it."""
    return lambda name, make: _once(tmp_path_factory, name, make)


@pytest.fixture(scope="session")
def distributions(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Distribution]:
    """Every distribution of the workspace with its wheel, built from a copy: a stale build folder would leak into it."""
    projects = [
        path.parent
        for pattern in ("", "core/", "harnesses/*/", "plugins/*/")
        for path in sorted(repo_root.glob(pattern + "pyproject.toml"))
    ]

    def build(folder: Path) -> None:
        copy = folder / "source"
        shutil.copytree(repo_root, copy, ignore=ignored)
        for number, project in enumerate(projects):
            source = copy / project.relative_to(repo_root)
            _run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder / str(number), source])

    built = _once(tmp_path_factory, "wheels", build)
    wheels = [next((built / str(number)).glob("*.whl")) for number in range(len(projects))]
    return [
        Distribution(wheel.name.split("-")[0].replace("_", "-"), project, wheel)
        for project, wheel in zip(projects, wheels, strict=True)
    ]


def _environment(folder: Path) -> Environment:
    _run([sys.executable, "-m", "venv", "--without-pip", folder])
    return Environment(folder)


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Return a function that makes an empty virtual environment."""
    return lambda name: _environment(tmp_path_factory.mktemp(name) / "venv")


@pytest.fixture(scope="session")
def installed(distributions: list[Distribution], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with every wheel in it and what they depend on, nothing else; tests must not change it."""

    def fill(folder: Path) -> None:
        _environment(folder / "venv").pip("install", *(dist.wheel for dist in distributions))

    return Environment(_once(tmp_path_factory, "installed", fill) / "venv")

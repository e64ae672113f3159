"""Fixtures of the command line's tests: a runner, and small fields on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from briquette_cli.main import cli


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BRIQUETTE_TARGET", "BRIQUETTE_FUSION", "BRIQUETTE_CONFIG", "BRIQUETTE_DISABLE_PACKS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Return a function that runs `briquette` in this process and checks its exit code."""

    def invoke(*args: object, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [str(a) for a in args])
        assert result.exit_code == code, (args, result.exit_code, result.output, result.exception)
        if code and code != 4:
            assert any(line.startswith("error: ") for line in result.stderr.splitlines()), result.stderr
            assert "Traceback" not in result.stderr
        return result

    return invoke


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., Any]:
    """Return a function that runs `briquette` with ``--json`` and returns what it wrote to standard output."""

    def invoke(*args: object, code: int = 0) -> Any:
        return json.loads(run(*args, "--json", code=code).stdout)

    return invoke


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `briquette` as a program of its own, in `tmp_path`."""

    def start(*args: object, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONUTF8"))}
        done = subprocess.run(
            [sys.executable, "-m", "briquette_cli.main", *map(str, args)],
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
            env={**kept, **env},
            timeout=120,
        )
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done

    return start


@pytest.fixture
def field() -> np.ndarray:
    """A smooth float32 field of shape (40, 50) with two NaN."""
    y, x = np.mgrid[0:40, 0:50]
    values = (np.sin(x / 9) * np.cos(y / 7) * 10 + 280).astype(np.float32)
    values[3, 4] = values[20, 49] = np.nan
    return values


@pytest.fixture
def npy(tmp_path: Path, field: np.ndarray) -> Path:
    path = tmp_path / "field.npy"
    np.save(path, field)
    return path

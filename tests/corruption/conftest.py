"""Where the corruption tests find their parts, and how they run a campaign of hostile archives in a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from briquette import discovery

# `hostile` is a package of this folder; tests are imported by path, so the folder is put on the path here
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

#: how many mutants a campaign makes of each preset's archives, where the tests' own numbers are not wanted
COUNT = "BRIQUETTE_FUZZ_COUNT"
#: to see a failure again; by default every run takes new seeds
SEED = "BRIQUETTE_FUZZ_SEED"

Campaign = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True, scope="session")
def _compiler() -> None:
    """Every test here compares targets, so it needs the one that compiles."""
    reason = discovery.registry().target("host").unavailable()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """Return a function that runs ``python -m hostile NAMES PRESET OPTIONS`` and returns its report.

    The process is what keeps a crash, a hang or a sanitizer's report from ending the test run; the test then fails with what
    the process said, its seed, and the mutant it was at.
    """

    def run(names: str, preset: str, *options: str, count: int, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        seed = int(os.environ.get(SEED) or secrets.randbits(32))
        count = int(os.environ.get(COUNT) or count)
        mutant = tmp_path / "mutant.bin"
        command = [sys.executable, "-m", "hostile", names, preset, *options]
        command += ["--count", str(count), "--seed", str(seed), "--mutant", str(mutant)]
        print(f"{SEED}={seed} {COUNT}={count}: {names} {preset}")
        done = subprocess.run(command, cwd=HERE, env={**os.environ, **(env or {})}, text=True, capture_output=True, check=False)
        if done.returncode:
            said = f"{done.stdout[-2000:]}\n{done.stderr[-8000:]}"
            pytest.fail(
                f"{names} {preset} ended with status {done.returncode}; {SEED}={seed}, mutant in {mutant}\n{said}", pytrace=False
            )
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        print(report)
        return report

    return run

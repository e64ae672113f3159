"""Fixtures of the parity tests: fresh random inputs, a record of what really ran, and a reader in another process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from briquette import discovery
from briquette.executor import Executable
from briquette.harness import Direction, GroupProgram
from briquette.plan import Step

# the kit is a module of this folder; tests are imported by path, so the folder is put on the path here
sys.path.insert(0, str(Path(__file__).parent))

from parity_kit import FreshReader


@pytest.fixture(scope="session", autouse=True)
def _needs_a_compiler() -> None:
    reason = discovery.registry().target("host").unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Direction, tuple[str, ...]]]:
    """The compiled programs that runs asked for, in order; what a plan promises is compared with it."""
    found: list[tuple[Direction, tuple[str, ...]]] = []
    program = Executable.program

    def recorded(self: Executable, step: Step, direction: Direction) -> GroupProgram:
        found.append((direction, step.nodes))
        return program(self, step, direction)

    monkeypatch.setattr(Executable, "program", recorded)
    return found


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshReader]:
    """A process of its own that decodes archives it is shown: another working folder, no GPU in sight."""
    reader = FreshReader(tmp_path_factory.mktemp("fresh"))
    yield reader
    reader.close()

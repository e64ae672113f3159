"""Fixtures of the tests of random access: fresh random regions, and a count of what a run reads and decodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from briquette import discovery
from briquette.archive.views import Blocks
from briquette.executor import Executable


@dataclass
class Work:
    """What runs did: blocks whose checksums were computed, as (segment, block), and elements that inverses were asked for."""

    blocks: set[tuple[int, int]] = field(default_factory=set)
    decoded: list[int] = field(default_factory=list)

    def clear(self) -> None:
        self.blocks.clear()
        self.decoded.clear()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count from here on; both still happen."""
    found = Work()
    digest, inverse = Blocks._digest, Executable.inverse

    def counted(self: Blocks, k: int) -> int:
        found.blocks.add((self._index, k))
        return digest(self, k)

    def watched(self: Executable, sinks: Mapping[Any, Any], record: Any, count: int, *rest: Any) -> Any:
        found.decoded.append(count if isinstance(count, int) else count.count)
        return inverse(self, sinks, record, count, *rest)

    monkeypatch.setattr(Blocks, "_digest", counted)
    monkeypatch.setattr(Executable, "inverse", watched)
    return found


@pytest.fixture(scope="session")
def host() -> None:
    """Skip where nothing can be compiled."""
    reason = discovery.registry().target("host").unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")

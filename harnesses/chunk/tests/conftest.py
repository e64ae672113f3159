"""A pack of toy stages, laid where this process finds it, and the host target."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from briquette import discovery
from briquette.selection import choose_target

HERE = Path(__file__).resolve().parent
PACK = HERE / "toychunks"
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module of the toy stages; the registry of this process knows them until the module's last test."""
    site = tmp_path_factory.mktemp("toychunks")
    info = site / "toychunks-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toychunks\nVersion: 0.1\n", encoding="utf-8")
    stages = "[briquette.stages]\ntoy-turn = toychunks:Turn\ntoy-trim = toychunks:Trim\n"
    (info / "entry_points.txt").write_text(stages, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.syspath_prepend(str(PACK))
        with discovery.use(discovery.Registry.scan()):
            import toychunks  # type: ignore[import-not-found]

            yield toychunks
    sys.modules.pop("toychunks", None)


@pytest.fixture(scope="session")
def host() -> Any:
    """The host target; skips where it cannot run."""
    target = choose_target("host")
    assert target is not None
    reason = target.unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")
    return target

"""A target that runs without a GPU: its driver is the stand-in of this folder."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from briquette import discovery
from briquette_target_cuda import arrays, compiler, driver, prepared, ring, staging, target

# helpers are modules of this folder; tests are imported by path, so the folder is put on the path here
sys.path.insert(0, str(Path(__file__).parent))

from cuda_stand_in import Driver

CACHES: tuple[Any, ...] = (
    *(driver.primary_context, driver._handle, driver.attribute, driver.has_pools, driver.stream),
    *(ring.ring_of, staging.staging_of, arrays.spares_of, prepared._recording),
)


@pytest.fixture
def own_registry() -> Iterator[None]:
    """A target of this test's own, whose modules are loaded into this test's stand-in."""
    with discovery.use(discovery.Registry.scan()):
        yield


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Driver]]:
    """Return what makes a driver, and puts it in the place of the real one until the test ends."""

    def put(**what: Any) -> Driver:
        gc.collect()  # device memory of another driver goes back to that one
        made = Driver(**what)
        for cache in CACHES:
            cache.cache_clear()
        monkeypatch.setattr(driver, "bindings", lambda: made)
        monkeypatch.setattr(driver, "missing", lambda: None)
        monkeypatch.setattr(target, "compiled", lambda source, capability, cache: b"code")
        monkeypatch.setattr(compiler, "nvrtc", lambda: pytest.fail("NVRTC is not to be loaded"))
        return made

    yield put
    gc.collect()
    for cache in CACHES:
        cache.cache_clear()

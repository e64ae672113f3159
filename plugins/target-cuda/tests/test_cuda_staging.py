"""Copies between host and device through page-locked slots, with a driver that is as late as CUDA allows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cuda_stand_in import Driver

from briquette_target_cuda import driver, staging
from briquette_target_cuda.target import CudaMemory, Session

SIZES = [0, 1, staging.SMALL, staging.SMALL + 1, (1 << 18) + 3, (1 << 20) - 1, 5 * (1 << 20) + 77, 9 * staging.SLOT + 5]
STREAM = 1
#: bytes of memory that is not kept for the next run
LARGE = 3 << 20


@pytest.fixture(autouse=True)
def _four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_cpus", lambda: 4)


def there_and_back(data: np.ndarray[Any, Any], stream: int = STREAM) -> np.ndarray[Any, Any]:
    session = Session(0, stream)
    with session.current():
        memory = session.memory(data.nbytes)
        session.write(memory.pointer, data)
        out = np.empty_like(data)
        data[:] = 0xEE  # the caller may use it again
        return session.read(memory.pointer, out)


@pytest.mark.parametrize("stream", [STREAM, 2, 77])
@pytest.mark.parametrize("nbytes", SIZES)
def test_what_goes_there_comes_back(stand_in: Callable[..., Driver], nbytes: int, stream: int) -> None:
    made = stand_in()
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    assert there_and_back(data.copy(), stream).tobytes() == data.tobytes()
    assert ("pageable" in made.log) == (0 < nbytes <= staging.SMALL)
    assert not made.stack


def test_slots_are_made_once_and_used_again(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    data = np.random.default_rng(1).integers(0, 256, 7 * staging.SLOT, np.uint8)
    for _ in range(5):
        assert there_and_back(data.copy()).tobytes() == data.tobytes()
    assert 1 <= len(made.pinned) <= staging.THREADS


def test_many_threads_at_once(stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in()
    monkeypatch.setattr(staging, "_LANES", 3)  # so that some wait for a lane

    def work(seed: int) -> bool:
        data = np.random.default_rng(seed).integers(0, 256, 3_000_000 + 1001 * seed, np.uint8)
        return all(there_and_back(data.copy(), 1 + seed % 3).tobytes() == data.tobytes() for _ in range(3))

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(work, range(12)))
    assert len(made.pinned) <= 3


@pytest.mark.parametrize("page_locked", [0, 2 * staging.SLOT])
def test_without_enough_page_locked_memory_copies_still_work(stand_in: Callable[..., Driver], page_locked: int) -> None:
    made = stand_in(page_locked=page_locked)
    data = np.random.default_rng(2).integers(0, 256, 5 * staging.SLOT, np.uint8)
    for _ in range(2):
        assert there_and_back(data.copy()).tobytes() == data.tobytes()
    assert ("pageable" in made.log) == (page_locked == 0)
    session = Session(0, STREAM)
    with session.current():
        memory = session.memory(9000)
        session.send(memory.pointer, bytes(range(250)) * 36)
        assert session.peek(memory.pointer, 4000) == (bytes(range(250)) * 36)[:4000]


def test_page_locked_arrays_go_without_a_detour(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    base = made.cuMemAllocHost(1 << 20)[1]
    view = np.frombuffer(made.pinned[base], np.uint8)
    view[:] = np.random.default_rng(3).integers(0, 256, view.size, np.uint8)
    expected = view.tobytes()
    assert there_and_back(view).tobytes() == expected  # write() waits: the array is written to at once
    assert len(made.pinned) <= 1 + staging.THREADS


def test_an_error_of_one_thread_is_the_callers_and_lanes_survive_it(
    stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stand_in()
    data = np.zeros(9 * staging.SLOT, np.uint8)
    there_and_back(data.copy())
    record, calls = made.cuEventRecord, iter(range(100))

    def failing(event: Any, stream: int) -> Any:
        if next(calls) == 4:
            return (type(made.cuCtxSynchronize()[0])(1),)
        return record(event, stream)

    monkeypatch.setattr(made, "cuEventRecord", failing)
    with pytest.raises(driver.DeviceError, match="CUDA_ERROR_INVALID_VALUE: as the stand-in was told"):
        there_and_back(data)
    monkeypatch.undo()
    lanes = staging.staging_of(0)._free
    assert len(lanes) == staging.staging_of(0)._made


def test_what_goes_to_a_callers_array_is_there_when_the_call_returns(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    memory = CudaMemory()
    data = np.random.default_rng(4).integers(0, 256, 3_000_000, np.uint8)
    out = memory.upload(data)
    memory.upload(data[::-1], out)
    assert not made.pending[STREAM]
    assert memory.download(out).tobytes() == data[::-1].tobytes()


@pytest.mark.filterwarnings("ignore:CUDA device 0 has no memory pools")
@pytest.mark.parametrize("pools", [True, False])
def test_memory_is_freed_in_order_with_and_without_pools(stand_in: Callable[..., Driver], pools: bool) -> None:
    made = stand_in(pools=pools)
    session = Session(0, STREAM)
    with session.current():
        kept, gone = session.array(LARGE, "uint8"), session.array(LARGE, "uint8")
        session.zero(gone.pointer, LARGE)
        session.copy(kept.pointer, gone.pointer, LARGE)
        session.zero(gone.pointer, LARGE)
        del gone
        assert session.read(kept.pointer, np.ones(LARGE, np.uint8)).sum() == 0
    assert made.log.count("alloc") == (0 if pools else 2)
    assert len(made.live) == 1


def test_describe_says_where_there_are_no_pools(stand_in: Callable[..., Driver]) -> None:
    from briquette.cache import Cache
    from briquette_target_cuda.target import CudaTarget

    stand_in(pools=True)
    assert CudaTarget(cache=Cache(None)).describe()["memory"] == "in stream order"
    stand_in(pools=False)
    with pytest.warns(RuntimeWarning, match="no memory pools"):
        assert CudaTarget(cache=Cache(None)).describe()["memory"] == driver.NO_POOLS

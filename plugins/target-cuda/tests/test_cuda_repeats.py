"""Calls that come again on device arrays: launches that were put down once, and graphs where the memory is the same."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from cuda_stand_in import Driver, Kernels, started

import briquette as bq
from briquette.errors import ArchiveError
from briquette_target_cuda.arrays import DeviceArray
from briquette_target_cuda.target import CudaMemory, Session

pytestmark = pytest.mark.usefixtures("own_registry")

BOUNDS = [bq.Bound(1e-3), bq.Bound(1e-3, "rel")]
SINGLE = ["briquette_survey", "briquette_forward", "sync"]


def field(n: int, seed: int, aside: bool = False) -> np.ndarray[Any, Any]:
    x = (np.sin(np.arange(n) / 40) + np.random.default_rng(seed).standard_normal(n) / 30).astype(np.float32)
    if aside:
        x[seed :: 97 + seed] = np.nan
    return x


def coded(pipe: bq.Pipeline, x: Any, bound: bq.Bound = BOUNDS[0]) -> bytes:
    return bytes(pipe.compress(x, bound.eb, bound.mode, target="numpy"))


def put(x: np.ndarray[Any, Any], into: DeviceArray) -> None:
    CudaMemory().upload(x, into)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("n", [30_000, 8192 * 5])
def test_new_data_in_the_same_memory(stand_in: Callable[..., Driver], n: int, bound: bq.Bound) -> None:
    made = stand_in()
    pipe = started(made, bound=bound)
    given = CudaMemory().upload(field(n, 0))
    for seed in range(9):
        x = field(n, seed, aside=seed in (0, 3, 4, 7))  # kept aside in the first run, alone, and replayed
        put(x, given)
        made.log.clear()
        archive = bq.compress_on_device(given, bound.eb, bound.mode, pipeline=pipe)
        assert ("graph" in made.log) == (seed >= 2)
        assert archive.to_bytes() == coded(pipe, x, bound)
        assert CudaMemory().download(archive.decompress()).tobytes() == bq.decompress(coded(pipe, x, bound)).tobytes()
        values = pipe.executable("float32", "numpy").forward(x, bound, 1)[1].values()
        assert archive.payload_bytes == sum(v.nbytes for v in values)
        del archive


def test_the_record_is_that_of_any_other_run(stand_in: Callable[..., Driver]) -> None:
    pipe, x = started(stand_in()), field(50_000, 1)
    given = CudaMemory().upload(x)
    records = [bq.compress_on_device(given, 1e-3, pipeline=pipe).record for _ in range(6)]
    assert len({id(record) for record in records}) == 6
    for record in records:
        assert record.results == records[0].results
        assert record.state == records[0].state
    assert records[0].state == pipe.run(x, 1e-3, target="numpy").record.state


def test_archives_that_are_kept_have_memory_of_their_own(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, n = started(made), 40_000
    sources = [CudaMemory().upload(field(n, seed, aside=seed % 3 == 1)) for seed in range(7)]
    kept = [bq.compress_on_device(given, 1e-3, pipeline=pipe) for given in sources]
    assert "graph" not in made.log
    for seed, archive in enumerate(kept):
        assert archive.to_bytes() == coded(pipe, field(n, seed, aside=seed % 3 == 1))


def test_shapes_and_bounds_in_turn(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, data = started(made), [field(24_000, 1), field(31_000, 2)]
    given = [CudaMemory().upload(x) for x in data]
    for _ in range(5):
        for bound in (bq.Bound(1e-3), bq.Bound(1e-2), bq.Bound(1e-3, "rel")):
            made.kernels = Kernels(made, pipe, "float32", bound)
            for x, array in zip(data, given, strict=True):
                for shape in ((x.size,), (x.size // 100, 100)):
                    archive = bq.compress_on_device(array.reshaped(shape), bound.eb, bound.mode, pipeline=pipe)
                    assert archive.to_bytes() == coded(pipe, x.reshape(shape), bound)


def test_arrays_in_other_streams(stand_in: Callable[..., Driver]) -> None:
    pipe, x = started(stand_in()), field(30_000, 5)
    given = CudaMemory().upload(x)
    for turn in range(8):
        stream = (1, 7)[turn % 2] if turn < 4 else 7
        array = DeviceArray(given.pointer, given.dtype, given.shape, 0, stream, given)
        assert bq.compress_on_device(array, 1e-3, pipeline=pipe).to_bytes() == coded(pipe, x)


@pytest.mark.parametrize("lacking", ["graphs", "page-locked memory", "pools"])
@pytest.mark.filterwarnings("ignore:CUDA device 0 has no memory pools")
def test_devices_that_lack_something(stand_in: Callable[..., Driver], lacking: str) -> None:
    made = stand_in(pools=lacking != "pools", page_locked=0 if lacking == "page-locked memory" else 1 << 30)
    made.instantiates = lacking != "graphs"
    pipe, x = started(made), field(30_000, 5, aside=True)
    given = CudaMemory().upload(x)
    for _ in range(6):
        assert bq.compress_on_device(given, 1e-3, pipeline=pipe).to_bytes() == coded(pipe, x)
    assert ("graph" in made.log) == (lacking == "pools")
    made.cuCtxSynchronize()


def test_from_the_third_call_on_a_graph_and_nothing_else(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, x = started(made), field(250_000, 2)
    given = CudaMemory().upload(x)
    made.stack.append(0x1000)
    logs = []
    for _ in range(6):
        made.log.clear()
        bq.compress_on_device(given, 1e-3, pipeline=pipe)
        logs.append([*made.log])
    assert logs == [["alloc async", *SINGLE], SINGLE, *[["graph", "sync"]] * 4]
    assert len(made.graphs) == 1
    slots = len(made.pinned)
    del pipe
    gc.collect()
    assert not made.graphs  # they end with the pipeline
    assert len(made.pinned) == slots


def test_a_shape_that_comes_once_is_not_put_down(stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = started(stand_in())
    monkeypatch.setattr(Session, "prepared", lambda *_: pytest.fail("this takes as long as two calls"))
    for n in range(30_000, 30_020):
        x = field(n, n)
        archive = bq.compress_on_device(CudaMemory().upload(x), 1e-3, pipeline=pipe)
        assert CudaMemory().download(archive.decompress()).tobytes() == bq.decompress(coded(pipe, x)).tobytes()
        assert archive.to_bytes() == coded(pipe, x)


def test_back_from_the_third_call_on_a_graph(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, n = started(made), 250_000
    given, out = CudaMemory().upload(field(n, 0)), CudaMemory().upload(field(n, 9))
    made.stack.append(0x1000)
    for seed in range(8):
        x = field(n, seed, aside=seed == 6)
        put(x, given)
        archive = bq.compress_on_device(given, 1e-3, pipeline=pipe)
        put(np.full(n, np.nan, np.float32), out)
        made.log.clear()
        assert archive.decompress(out) is out
        single = ["briquette_inverse", "sync"]  # with values aside it goes the general way
        assert made.log == (single if seed in (0, 1, 6) else ["graph", "sync"])
        assert CudaMemory().download(out).tobytes() == bq.decompress(coded(pipe, x), target="numpy").tobytes()
        part = archive.decompress(flat=slice(9000, 20_000))
        assert CudaMemory().download(part).tobytes() == CudaMemory().download(out[9000:20_000]).tobytes()
        elsewhere = DeviceArray(out.pointer, out.dtype, out.shape, 0, 7, out)
        assert archive.decompress(elsewhere) is elsewhere
        del archive, part


@pytest.mark.parametrize("turn", [1, 4])
def test_words_that_no_run_writes_are_refused_however_often(
    stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    made = stand_in()
    pipe, x = started(made), field(30_000, 4)
    given = CudaMemory().upload(x)
    archives = [bq.compress_on_device(given, 1e-3, pipeline=pipe) for _ in range(2)]
    assert made.kernels is not None
    right, damaged = made.kernels.inverse, [False]

    def inverse(grid: int, *slots: int) -> None:
        right(grid, *slots)
        if damaged[0]:
            made.kernels.word(slots[13], 1)  # type: ignore[union-attr]

    inverse.slots = 14  # type: ignore[attr-defined]
    monkeypatch.setattr(made.kernels, "inverse", inverse)
    for each in range(6):
        damaged[0] = each == turn
        if damaged[0]:
            with pytest.raises(ArchiveError, match="cannot have been written"):
                archives[1].decompress()
            break
        archives[1].decompress()


def test_many_threads_on_one_array(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, x = started(made), field(60_000, 3)
    given, expected = CudaMemory().upload(x), coded(pipe, x)
    with ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda _: bq.compress_on_device(given, 1e-3, pipeline=pipe).to_bytes(), range(60))
        assert set(found) == {expected}


def test_an_error_in_a_repeated_call_does_not_stick(stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch) -> None:
    made = stand_in()
    pipe, x = started(made), field(30_000, 4)
    given = CudaMemory().upload(x)
    for _ in range(5):
        bq.compress_on_device(given, 1e-3, pipeline=pipe)
    with monkeypatch.context() as patch:
        patch.setattr(type(made), "run", lambda *_: (_ for _ in ()).throw(RuntimeError("the device is gone")))
        with pytest.raises(RuntimeError, match="gone"):
            bq.compress_on_device(given, 1e-3, pipeline=pipe)
    made.pending.clear()
    assert bq.compress_on_device(given, 1e-3, pipeline=pipe).to_bytes() == coded(pipe, x)


def test_what_depends_on_an_address_in_another_way_is_refused(stand_in: Callable[..., Driver]) -> None:
    stand_in()
    session = Session(0, 1)

    def work(place: Any, addresses: Sequence[int]) -> None:
        place.zero(addresses[0] // 2, 8)

    with session.current(), pytest.raises(ValueError, match="in another way"):
        session.prepared(work, [0x1000], 8)

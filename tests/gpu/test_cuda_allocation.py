"""Arenas in device memory: the same bytes, no allocation of streams from call to call, and the peak the driver's pool sees."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")

COUNT = 1 << 22
STAGES = ("linear-quantizer", "lorenzo-1d", "zigzag")


def walk(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.cumsum(np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def staged(name: str = "fast") -> bq.Pipeline:
    return bq.Pipeline.from_preset(name)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every array and every reservation that core asks the target's memory for, in bytes."""
    from briquette_target_cuda.target import CudaMemory

    made: list[tuple[str, int]] = []
    empty, reserve = CudaMemory.empty, CudaMemory.reserve

    def logged_empty(self: Any, count: int, dtype: str, like: Any = None) -> Any:
        made.append(("empty", count * np.dtype(dtype).itemsize))
        return empty(self, count, dtype, like)

    def logged_reserve(self: Any, nbytes: int, like: Any = None) -> Any:
        made.append(("reserve", nbytes))
        return reserve(self, nbytes, like)

    monkeypatch.setattr(CudaMemory, "empty", logged_empty)
    monkeypatch.setattr(CudaMemory, "reserve", logged_reserve)
    return made


@pytest.mark.parametrize("fusion", ["off", "auto"])
@pytest.mark.parametrize("name", ["fast", "planes", "zigzag"])
def test_the_same_archives_and_reconstructions(name: str, fusion: str) -> None:
    pipe = staged(name)
    for seed, count in enumerate([200_003, 200_000, 17_000]):
        x = walk(count, seed)
        blob = bq.compress(x, 1e-3, "rel", pipeline=name, target="numpy")
        back = bq.decompress(blob, target="numpy")
        archive = bq.compress_on_device(cupy.asarray(x), 1e-3, "rel", pipeline=pipe, fusion=fusion, allocation="preallocate")
        assert archive.to_bytes() == blob
        assert cupy.asnumpy(cupy.asarray(archive.decompress())).tobytes() == back.tobytes()
        again = bq.decompress(blob, target="cuda", fusion=fusion, allocation="preallocate")
        assert again.tobytes() == back.tobytes()


def test_streams_are_allocated_once(log: list[tuple[str, int]]) -> None:
    x = cupy.asarray(walk(COUNT))
    out = cupy.empty(COUNT, cupy.float32)
    pipe = staged()
    for i in range(4):
        log.clear()
        archive = bq.compress_on_device(x[i:], 1e-3, pipeline=pipe, fusion="off", allocation="preallocate")
        archive.decompress(out[i:])
        assert log == ([("reserve", 2 * 4 * COUNT)] if i == 0 else [])
    log.clear()
    archive = bq.compress_on_device(x, 1e-3, pipeline=pipe, fusion="off")
    archive.decompress(out)
    assert log == [("empty", 4 * COUNT)] * 4  # codes and differences, each way
    log.clear()
    archive = bq.compress_on_device(x, 1e-3, pipeline=pipe, fusion="auto")
    archive.decompress(out)
    assert log == []  # inside the group they never exist


def test_the_pool_sees_the_peak_of_the_plan() -> None:
    from briquette_target_cuda import driver

    lib = driver.bindings()
    pool = driver.check(lib.cuDeviceGetDefaultMemPool(driver.check(lib.cuDeviceGet(0))))
    used, high = (getattr(lib.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_USED_MEM_{w}") for w in ("CURRENT", "HIGH"))
    x = cupy.asarray(walk(COUNT))
    registry = discovery.registry()
    pipe = bq.chain(*(registry.stage_class(name).from_parameters({}) for name in STAGES))  # ends at a stream: no payload
    for allocation in ("minimal", "preallocate"):
        run = pipe.executable("float32", "cuda", "off", allocation=allocation)
        bq.compress_on_device(x, 1e-3, pipeline=pipe, fusion="off", allocation=allocation)  # compiles
        run.release()
        cupy.cuda.Device().synchronize()
        before = int(driver.check(lib.cuMemPoolGetAttribute(pool, used)))
        driver.check(lib.cuMemPoolSetAttribute(pool, high, driver.bindings().cuuint64_t(0)))
        archive = bq.compress_on_device(x, 1e-3, pipeline=pipe, fusion="off", allocation=allocation)
        cupy.cuda.Device().synchronize()
        seen = int(driver.check(lib.cuMemPoolGetAttribute(pool, high))) - before
        ours = int(archive.record.results[""]["peak_stream_bytes"]) - x.nbytes  # type: ignore[arg-type]
        if allocation == "minimal":
            assert ours == run.plan.buffer_bytes("forward", COUNT) - x.nbytes
        else:
            assert ours == run.layout("forward", COUNT).total + 4 * COUNT  # the sink stands beside the arena
        assert ours <= seen <= ours + x.nbytes // 2, (allocation, ours, seen)  # control blocks and lists of kept values
        del archive


def test_streams_and_threads_share_no_arena() -> None:
    fields = [walk(120_000 + 7 * i, i) for i in range(8)]
    expected = [bytes(bq.compress(x, 1e-3, "rel", target="numpy")) for x in fields]
    pipe = staged()

    def work(i: int) -> bool:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.asarray(fields[i])
            stream.synchronize()
            same = True
            for _ in range(10):
                archive = bq.compress_on_device(
                    x, 1e-3, "rel", pipeline=pipe, fusion="off", allocation="preallocate", stream=stream
                )
                same = same and archive.to_bytes() == expected[i]
                archive.decompress()
            stream.synchronize()
        return same

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))

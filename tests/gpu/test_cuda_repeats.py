"""Calls that come again on a GPU: from the third one on the same memory is a graph; the archive stays that of the reference."""

from __future__ import annotations

import concurrent.futures
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")

SEED = int(np.random.SeedSequence().generate_state(1)[0])


def fresh(n: int, turn: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([SEED, turn])
    x = (np.cumsum(rng.standard_normal(n)) * 10.0 ** rng.uniform(-2, 2)).astype(dtype)
    if turn % 3 == 1:
        x[rng.integers(0, n, n // 50)] = rng.choice([np.nan, np.inf, -np.inf, 1e38], n // 50)
    return x


def coded(x: np.ndarray[Any, Any], eb: float, mode: str, pipeline: Any) -> bytes:
    return bytes(bq.compress(x, eb, mode, pipeline=pipeline, target="numpy"))


@pytest.mark.parametrize("preset", discovery.registry().presets())
@pytest.mark.parametrize(("mode", "dtype"), [("abs", "float32"), ("rel", "float32"), ("abs", "float64")])
def test_fresh_data_in_the_same_memory(preset: str, mode: str, dtype: str) -> None:
    n = 70_001
    pipe = bq.Pipeline.from_preset(preset)
    given, out = cupy.empty(n, dtype), cupy.empty(n, dtype)
    for turn in range(7):
        x = fresh(n, turn, dtype)
        given.set(x)
        try:
            run = pipe.run(x, 1e-2, mode, target="numpy")
        except bq.BriquetteError as refused:
            pytest.skip(str(refused))
        expected = bytes(run.archive)
        archive = bq.compress_on_device(given, 1e-2, mode, pipeline=pipe)
        assert bytes(bq.compress(given, 1e-2, mode, pipeline=pipe)) == expected, (SEED, turn)
        if not run.raw:  # else it is coded on the device all the same
            assert archive.to_bytes() == expected, (SEED, turn)
            out.fill(cupy.nan)
            archive.decompress(out)
            assert out.get().tobytes() == bq.decompress(expected, target="numpy").tobytes(), (SEED, turn)


def test_archives_that_are_kept() -> None:
    n = 100_000
    pipe, given = bq.Pipeline.from_preset("fast"), cupy.empty(n, "float32")
    kept = []
    for turn in range(40):
        given.set(fresh(n, turn))
        kept.append((turn, bq.compress_on_device(given, 1e-2, "rel", pipeline=pipe)))
        if turn % 7 == 6:
            del kept[::2]
    for turn, archive in kept:
        assert archive.to_bytes() == coded(fresh(n, turn), 1e-2, "rel", pipe), (SEED, turn)


def test_threads_and_streams_each_with_memory_of_its_own() -> None:
    n = 150_000
    pipe = bq.Pipeline.from_preset("fast")

    def work(thread: int) -> bool:
        stream = cupy.cuda.Stream(non_blocking=True) if thread % 2 else None
        with stream or cupy.cuda.Stream.null:
            given = cupy.empty(n, "float32")
            for turn in range(8):
                x = fresh(n, 100 * thread + turn)
                given.set(x)
                archive = bq.compress_on_device(given, 1e-2, "rel", pipeline=pipe, stream=stream)
                if archive.to_bytes() != coded(x, 1e-2, "rel", pipe):
                    return False
        return True

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6))), SEED


def test_bounds_and_shapes_in_turn() -> None:
    pipe = bq.Pipeline.from_preset("fast")
    arrays = [(x, cupy.asarray(x)) for x in (fresh(40_000, 0), fresh(40_000, 1).reshape(200, 200), fresh(65_536, 2))]
    for turn in range(16):
        for x, given in arrays:
            eb = (1e-1, 1e-2, 1e-3)[turn % 3]
            assert bq.compress_on_device(given, eb, "rel", pipeline=pipe).to_bytes() == coded(x, eb, "rel", pipe)


def test_memory_stays_flat() -> None:
    pipe, given = bq.Pipeline.from_preset("fast"), cupy.asarray(fresh(300_000, 0))
    other = [cupy.asarray(fresh(300_000, turn)) for turn in range(100)]
    for x in other[:10]:
        bq.compress_on_device(x, 1e-2, "rel", pipeline=pipe)
    cupy.cuda.Device().synchronize()
    free = cupy.cuda.Device().mem_info[0]
    for _ in range(5):
        for x in other:
            for _ in range(3):
                bq.compress_on_device(x, 1e-2, "rel", pipeline=pipe)
    for _ in range(1000):
        bq.compress_on_device(given, 1e-2, "rel", pipeline=pipe)
    cupy.cuda.Device().synchronize()
    assert free - cupy.cuda.Device().mem_info[0] < 64 << 20

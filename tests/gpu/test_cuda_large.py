"""Sizes beyond 32 bits, checked element by element on the device; the look-back under delays."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette.harness import GroupRun
from briquette.record import Bound, RunRecord
from briquette.target import KernelSource

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")


def worst(x: Any, y: Any) -> float:
    """Largest difference, in float64, a piece at a time."""
    piece = 1 << 27
    return max(float(cupy.abs(x[i : i + piece].astype(cupy.float64) - y[i : i + piece]).max()) for i in range(0, x.size, piece))


def test_more_than_two_to_the_31_elements() -> None:
    n = (1 << 31) + 8192 * 3 + 77
    x = cupy.empty(n, cupy.float32)
    piece = 1 << 27
    for i in range(0, n, piece):
        at = cupy.arange(i, min(i + piece, n), dtype=cupy.float64)
        x[i : i + piece] = (cupy.sin(at * 1e-3) * 100 + at * 1e-7).astype(cupy.float32)
    x[::300_000_007] = cupy.nan
    archive = bq.compress_on_device(x, 1e-2)
    y = cupy.asarray(archive.decompress())
    gone = cupy.isnan(x)
    assert bool((gone == cupy.isnan(y)).all())
    x[gone] = 0
    y[gone] = 0
    assert worst(x, y) <= 1e-2
    # the far end, against the reference on the host
    tail = cupy.asnumpy(x[-100_000:])
    assert np.abs(tail - cupy.asnumpy(y[-100_000:])).max() <= 1e-2


def test_five_gigabytes_of_noise() -> None:
    n = 1_250_000_000
    bits = cupy.random.default_rng(5).integers(0, 2**32, n, dtype=cupy.uint32)
    x = bits.view(cupy.float32)
    archive = bq.compress_on_device(x, 1e-3)
    y = cupy.asarray(archive.decompress()).view(cupy.uint32)
    finite = cupy.isfinite(x)
    assert bool((y[~finite] == bits[~finite]).all())
    error = cupy.abs(x[finite].astype(cupy.float64) - y.view(cupy.float32)[finite])
    assert float(error.max()) <= 1e-3


def test_the_look_back_under_random_delays() -> None:
    """Blocks that sleep before they announce, and between announcing and looking back, change nothing."""
    x = cupy.asarray(np.cumsum(np.random.default_rng(9).standard_normal(3_000_000)).astype(np.float32))
    archive = bq.compress_on_device(x, 1e-3)
    expected = archive.to_bytes()
    run = archive._run
    program = run.program(run.plan.forward.steps[0], "forward")
    plain: KernelSource = program._module._source
    slow = plain.text.replace(
        "#include <briquette_warp/cuda/forward.cuh>",
        "#include <briquette_warp/cuda/device.cuh>\n"
        "__device__ inline void doze(unsigned salt) {\n"
        "  unsigned h = (blockIdx.x * 2654435761u) ^ (salt * 40503u) ^ (threadIdx.x >> 5) * 97u;\n"
        "  h ^= h >> 13; if (h % 3 == 0) __nanosleep(h % 20000); }\n"
        "#define briquette_doze(salt) doze(salt)\n"
        "#include <briquette_warp/cuda/forward.cuh>",
    )
    assert slow != plain.text
    delayed = run.target.compile(dataclasses.replace(plain, text=slow))
    session = run.target.session(archive.source.flat)
    kept, program._module = program._module, delayed
    try:
        for _ in range(20):
            values = program.forward(archive.source.flat, GroupRun(RunRecord(), x.size, run.plan.chunk, 1, Bound(1e-3)))
            again = dataclasses.replace(archive, _values=values)
            assert again.to_bytes() == expected
    finally:
        program._module = kept
    session.finish()

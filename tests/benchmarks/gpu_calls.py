"""Call table: wall clock of whole calls on a GPU, with graph replay beside them.

    python tests/benchmarks/gpu_calls.py

`rel` 1e-3, preset `fast`, a smooth float32 array in device memory: to an archive on the device, to bytes, and back;
medians over many calls, each ended by a synchronization. "host us over the kernels" is the wall clock of a call less
what its kernels take by CUDA events. The last lines time the first call of a process with an empty and a filled cache.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

import briquette as bq


def median_us(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for i in range(repeats + 3):
        cp.cuda.Device().synchronize()
        begin = time.perf_counter()
        work()
        cp.cuda.Device().synchronize()
        if i >= 3:
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def kernel_us(work: Callable[[], Any], ahead: Any) -> float:
    """Device time of what `work` enqueues, with the host kept ahead."""
    times = []
    for i in range(15):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        ahead.fill(i)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(cp.cuda.get_elapsed_time(begin, end) * 1e3)
    return statistics.median(times)


FIRST = """
import time, numpy as np
begin = time.perf_counter()
import briquette as bq
x = np.sin(np.arange(262144, dtype=np.float32))
imported = time.perf_counter()
bq.compress(x, 1e-3, target="cuda")
print(imported - begin, time.perf_counter() - imported)
"""
CONTEXT = """
import time
from briquette_target_cuda import driver
begin = time.perf_counter()
with driver.current(0): driver.check(driver.bindings().cuMemAllocAsync(1 << 20, 1))
print(time.perf_counter() - begin)
"""


def table(mb: int, ahead: Any) -> None:
    """Print the calls of one size."""
    x = cp.asarray(np.cumsum(np.random.default_rng(0).standard_normal(mb * (1 << 18))).astype(np.float32))
    repeats = {1: 200, 32: 50}.get(mb, 15)
    pipe = bq.Pipeline.from_preset("fast")
    graph, absolute = pipe.capture(x, 1e-3, "rel"), pipe.capture(x, 1.0)
    archive = bq.compress_on_device(x, 1e-3, "rel", pipeline=pipe)
    blob = archive.to_bytes()
    calls: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = [
        ("rel, archive on device", lambda: bq.compress_on_device(x, 1e-3, "rel", pipeline=pipe), graph.compress),
        ("abs, archive on device", lambda: bq.compress_on_device(x, 1.0, pipeline=pipe), absolute.compress),
        ("rel, to bytes", lambda: bq.compress(x, 1e-3, "rel", pipeline=pipe), None),
        ("rel, graph replay", graph.compress, graph.compress),
        ("abs, graph replay", absolute.compress, absolute.compress),
        ("back from device", archive.decompress, graph.decompress),
        ("back, graph replay", graph.decompress, graph.decompress),
        ("back from bytes to NumPy", lambda: bq.decompress(blob, target="cuda"), None),
    ]
    for label, work, kernels in calls:
        wall = median_us(work, repeats)
        if kernels is None:
            print(f"{mb:>5} {label:<28} {wall:>9.1f}")
            continue
        device = kernel_us(kernels, ahead)
        print(f"{mb:>5} {label:<28} {wall:>9.1f} {device:>11.1f} {wall - device:>13.1f}", flush=True)


def run_python(code: str, env: dict[str, str]) -> str:
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


def main() -> None:
    ahead = cp.empty(1 << 30, cp.uint8)
    print(f"{'MB':>5} {'call':<28} {'wall us':>9} {'kernels us':>11} {'host us over':>13}")
    for mb in (1, 32, 512):
        table(mb, ahead)
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "BRIQUETTE_CACHE_DIR": directory}
        context = float(run_python(CONTEXT, env))
        for label in ("empty cache", "filled cache"):
            seconds = float(run_python(FIRST, env).split()[1])
            print(f"first call, {label}: {seconds:.3f} s (of which the CUDA context alone: about {context:.3f} s)")


if __name__ == "__main__":
    main()

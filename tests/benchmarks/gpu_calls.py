"""Call table: wall clock of whole calls on a GPU, with graph replay beside them.

    python tests/benchmarks/gpu_calls.py [--sizes 1 32 512]

`rel` 1e-3, preset `fast`, a smooth float32 array in device memory: to an archive on the device, to bytes, and back;
medians over many calls, each ended by a synchronization. "host us over the kernels" is the wall clock of a call less
what its kernels take by CUDA events. The last lines time the first call of a process with an empty and a filled cache; in
those "in a context" the process has made its CUDA context before, as any that holds a device array has.
"""

from __future__ import annotations

import argparse
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
import sys, time, numpy as np
import briquette as bq
x = np.sin(np.arange(262144, dtype=np.float32))
if "context" in sys.argv:
    import cuda.bindings.driver as lib
    lib.cuInit(0)
    lib.cuCtxPushCurrent(lib.cuDevicePrimaryCtxRetain(lib.cuDeviceGet(0)[1])[1])
    lib.cuMemAllocAsync(1 << 20, 1)
begin = time.perf_counter()
bq.compress(x, 1e-3, target="cuda")
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
    kept: list[Any] = []

    def keeping() -> None:
        """Compress to memory that no call before has had, as a program does that keeps its archives."""
        if len(kept) == 20:
            kept.clear()
        kept.append(bq.compress_on_device(x, 1.0, pipeline=pipe))

    calls: list[tuple[str, Callable[[], Any], Callable[[], Any] | None]] = [
        ("rel, archive on device", lambda: bq.compress_on_device(x, 1e-3, "rel", pipeline=pipe), graph.compress),
        ("abs, archive on device", lambda: bq.compress_on_device(x, 1.0, pipeline=pipe), absolute.compress),
        ("abs, archives kept", keeping, absolute.compress),
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


def first(env: dict[str, str], *words: str) -> float:
    """Return the seconds of the first call of a process."""
    done = subprocess.run([sys.executable, "-c", FIRST, *words], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", type=int, default=[1, 32, 512], metavar="MB")
    sizes = parser.parse_args().sizes
    ahead = cp.empty(1 << 30, cp.uint8)
    print(f"{'MB':>5} {'call':<28} {'wall us':>9} {'kernels us':>11} {'host us over':>13}")
    for mb in sizes:
        table(mb, ahead)
    with tempfile.TemporaryDirectory() as directory:
        env = {**os.environ, "BRIQUETTE_CACHE_DIR": directory}
        print(f"first call, empty cache: {first(env):.3f} s")
        for label, words in (("filled cache", ()), ("filled cache, in a context", ("context",))):
            print(f"first call, {label}: {statistics.median(first(env, *words) for _ in range(3)):.3f} s")


if __name__ == "__main__":
    main()

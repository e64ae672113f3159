"""Kernel table: fused compression and decompression on a GPU beside the hand-written prototype, in one run.

    python tests/benchmarks/gpu_kernels.py --fields fields.py --prototype ./segment_per_lane [--preset fast]

For each field and range-relative bound: device to device, CUDA events, median of 15 after 3, everything the call
launches included (clearing of the control block, survey, fused kernel, values kept aside). The bound is resolved
before, so that what is timed is an ``abs`` run. Bandwidth of a device-to-device copy is measured in the same run.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import cupy as cp
from field_module import load_fields

import briquette as bq
from briquette.bounds import Extent, range_bound
from briquette.harness import GroupRun
from briquette.record import Bound, RunRecord

REPEATS, WARM = 15, 3
AHEAD = [cp.empty(1 << 32, cp.uint8)]


def median_ms(work: Any) -> float:
    times = []
    for i in range(WARM + REPEATS):
        begin, end = cp.cuda.Event(), cp.cuda.Event()
        AHEAD[0].fill(i)  # the host runs ahead of the device, so that launch gaps of Python do not count
        begin.record()
        work()
        end.record()
        end.synchronize()
        if i >= WARM:
            times.append(cp.cuda.get_elapsed_time(begin, end))
    return statistics.median(times)


def run_field(x: Any, eb: float, preset: str) -> tuple[float, float, float, float, int]:
    """Return (ratio, compress GB/s, decompress GB/s, largest error over bound, outliers)."""
    archive = bq.compress_on_device(x, eb, pipeline=preset)
    restored = cp.asarray(archive.decompress()).reshape(x.shape)
    error = float(cp.abs(x.astype(cp.float64) - restored.astype(cp.float64)).max())
    run = archive._run
    program, back = (run.program(p.steps[0], p.direction) for p in (run.plan.forward, run.plan.inverse))
    session = run.target.session(archive.source.flat)
    count = archive.source.flat.size
    of = run.lengths.stretch(x.shape)
    coded = run.lengths.elements(run.graph.sinks[0], of)
    forward = GroupRun(RunRecord(), count, run.plan.chunk, 1, Bound(eb), stretch=of, coded=coded)
    outliers = sum(int(r.get("outliers") or 0) for r in archive.record.results.values())
    keep: list[Any] = []

    def compress() -> None:
        keep[:] = [program.enqueue(session, archive.source.flat, forward)]

    out = run.target.memory.empty(count, archive.source.dtype, archive.source.flat)
    inverse = GroupRun(archive.record, count, run.plan.chunk, 1, out=out, stretch=of, coded=coded)

    def decompress() -> None:
        keep[:] = [back.enqueue_inverse(session, archive._values, inverse)]

    ratio = x.nbytes / len(archive.to_bytes())
    gb = x.nbytes / 1e6
    return ratio, gb / median_ms(compress), gb / median_ms(decompress), error / eb, outliers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", type=Path, required=True, help="the module that makes the fields")
    parser.add_argument("--prototype", type=Path, help="the compiled prototype; left out: no comparison")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--names", nargs="*")
    parser.add_argument("--bounds", nargs="*", type=float, default=[1e-2, 1e-3, 1e-4])
    args = parser.parse_args()
    fields = load_fields(args.fields)
    a, b = cp.empty(1 << 29, cp.uint8), cp.empty(1 << 29, cp.uint8)
    copy = 2 * a.nbytes / 1e6 / median_ms(lambda: cp.copyto(b, a))
    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{name}, driver {cp.cuda.runtime.driverGetVersion()}, copy {copy:.0f} GB/s (read + write), preset {args.preset}")
    print(
        f"{'field':<12} {'rel':>6} {'ratio':>8} {'proto':>8} {'comp':>6} {'proto':>6} {'frac':>5} "
        f"{'decomp':>6} {'proto':>6} {'frac':>5} {'err/eb':>7} outliers"
    )
    for field in args.names or fields.DEFAULT_SHAPES:
        x = fields.make(field, xp=cp)
        low, high = float(x.min()), float(x.max())
        with tempfile.NamedTemporaryFile(suffix=".f32") as file:
            if args.prototype:
                cp.asnumpy(x).tofile(file.name)
            for rel in args.bounds:
                _, eb = range_bound(rel, Extent(low, high, low))
                ratio, comp, decomp, error, outliers = run_field(x, eb, args.preset)
                proto = [float("nan")] * 3
                if args.prototype:
                    command = [args.prototype, repr(rel), file.name]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    pattern = r"CR ([\d.]+) compress\(strict\) (\d+) compress\(nochk\) \d+ decompress (\d+)"
                    found = re.search(pattern, done.stdout)
                    proto = [float(g) for g in found.groups()] if found else proto
                print(
                    f"{field:<12} {rel:>6g} {ratio:>8.3f} {proto[0]:>8.3f} {comp:>6.0f} {proto[1]:>6.0f} {comp / copy:>5.3f} "
                    f"{decomp:>6.0f} {proto[2]:>6.0f} {decomp / copy:>5.3f} {error:>7.5f} {outliers}",
                    flush=True,
                )
        del x
        cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()

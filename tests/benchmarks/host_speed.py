"""Host table: fused, staged and NumPy runs of a preset beside the one-lane prototype, in one run.

    python tests/benchmarks/host_speed.py --fields fields.py [--prototype one_lane_host.cpp] [--pipeline fast] [--rounds 7]

A 64 MB smooth field (turb3d, 256^3 float32), an absolute bound of 0.008 (ratio about 4.6), `out=` preallocated. Rounds
are interleaved, so that what else the machine does meets all alike; medians are printed, with the lowest and highest.
"""

from __future__ import annotations

import argparse
import platform
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from field_module import load_fields

import briquette as bq
from briquette.selection import choose_target

EB = 0.008
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
#: label -> (target, fusion, threads, runs a round)
WAYS = {
    "host fused, 1 thread": ("host", "auto", 1, 3),
    "host fused, 2 threads": ("host", "auto", 2, 3),
    "host staged, 1 thread": ("host", "off", 1, 1),
    "numpy": ("numpy", "auto", 1, 1),
}


def rate(x: np.ndarray[Any, Any], work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return float(x.nbytes / 1e6 / (time.perf_counter() - begin))


def prototype_rates(program: Path, field: Path) -> tuple[float, float]:
    text = subprocess.run([program, field, repr(EB)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"comp (\d+) MB/s decomp (\d+) MB/s", text)
    assert found is not None, text
    return float(found[1]), float(found[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fields", type=Path, required=True, help="the module that makes the field")
    parser.add_argument("--prototype", type=Path, help="the prototype's source; left out: no comparison")
    parser.add_argument("--pipeline", default="fast", help="a preset (default: fast)")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    fields = load_fields(args.fields)
    x = fields.make("turb3d", (256, 256, 256)).reshape(-1)
    holes = x.copy()
    holes[np.random.default_rng(0).random(x.size) < 0.01] = np.nan
    out, back = np.empty(bq.max_archive_bytes(x), np.uint8), np.empty_like(x)
    found: dict[str, tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        field, program = Path(directory, "x.f32"), Path(directory, "prototype")
        x.tofile(field)
        if args.prototype:
            subprocess.run(["g++", *FLAGS, args.prototype, "-o", program], check=True)
        cases = [(name, d, bytes(bq.compress(d, EB, pipeline=args.pipeline))) for name, d in (("", x), (", 1 % NaN", holes))]
        for _ in range(args.rounds):
            if args.prototype:
                one = prototype_rates(program, field)
                for values, value in zip(found.setdefault("prototype, 1 thread", ([], [])), one, strict=True):
                    values.append(value)
            for suffix, data, archive in cases:
                for label, (target, fusion, threads, runs) in WAYS.items():
                    if suffix and threads != 1:
                        continue
                    options = {"target": target, "fusion": fusion, "threads": threads}
                    comp, decomp = found.setdefault(label + suffix, ([], []))
                    for _ in range(runs):
                        comp.append(rate(x, lambda d=data, o=options: bq.compress(d, EB, pipeline=args.pipeline, out=out, **o)))
                        decomp.append(rate(x, lambda a=archive, o=options: bq.decompress(a, out=back, **o)))
    target = choose_target("host")
    print(f"{platform.processor() or platform.machine()}, {target.describe().get('compiler', '') if target else ''}")
    print(f"{'':<32}{'compress MB/s':>24}{'decompress MB/s':>24}")
    for label, pair in found.items():
        cells = [f"{statistics.median(v):>8.0f} ({min(v):.0f} to {max(v):.0f})" for v in pair]
        print(f"{label:<32}{cells[0]:>24}{cells[1]:>24}")


if __name__ == "__main__":
    main()

"""``python -m hostile CAMPAIGNS PRESET``: run campaigns; the last line printed is its report, in JSON."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from random import Random

from . import campaigns, kernels
from .archives import sound
from .guard import Watch, limit_memory, sanitize

CAMPAIGNS = {
    "plain": campaigns.plain,
    "resealed": campaigns.resealed,
    "headers": campaigns.headers,
    "kernels": kernels.words,
    "forward": kernels.forward,
    "planted": kernels.planted,
}


def main() -> None:
    parser = argparse.ArgumentParser("hostile", description=__doc__)
    parser.add_argument("campaigns", help=f"separated by commas: {', '.join(CAMPAIGNS)}")
    parser.add_argument("preset")
    parser.add_argument("--count", type=int, default=1000, help="mutants of each campaign")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutant", type=Path, default=Path("mutant.bin"), help="where the mutant at hand is kept")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--limit-memory", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("error")  # a warning on the way is not a clean refusal
    if given.sanitize:
        sanitize()
    if given.limit_memory:
        for original in sound(given.preset):  # what decoding needs is loaded and compiled before memory is bounded
            campaigns.outcome(original.data, "host")
        # the most that the few table entries of these archives can hold, with chunks of the largest size
        limit_memory(4 * 65536 * 8)
    watch = Watch(given.mutant)
    report = {}
    for name in given.campaigns.split(","):
        begin = time.perf_counter()
        report[name] = CAMPAIGNS[name](watch, given.preset, given.count, Random(given.seed))
        report[name]["seconds"] = round(time.perf_counter() - begin)
    print(json.dumps({**report, "slowest_ms": round(1000 * watch.slowest)}))


if __name__ == "__main__":
    main()

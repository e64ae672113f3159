"""``python sanitized_runs.py SANITIZER PRESET [FAULT]``: a preset's CUDA kernels in the emulator, compiled with a sanitizer.

Run it with the sanitizer's library preloaded; see test_emulator_sanitized.py. FAULT plants an error in one of the headers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import briquette as bq
import briquette_warp
from briquette.discovery import registry
from briquette.harness import Direction, GroupRun
from briquette.planner import chain_members
from briquette.record import Bound, RunRecord
from briquette.target import Target
from briquette_warp.chain import Composition
from briquette_warp.emulated import EmulatedProgram

FLAGS = {
    "thread": ("-O1", "-g", "-fsanitize=thread"),
    "address": ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize=alignment"),
}
#: header, what stands there, what is put in its place
FAULTS = {
    "no barrier behind the tile": ("device.cuh", "X(0);\n  }\n  __syncthreads();", "X(0);\n  }"),
    "no barrier behind the offset": (
        "forward.cuh",
        "else __syncthreads();\n    const uint64_t base = placed;",
        "const uint64_t base = placed;",
    ),
    "no barrier behind the values": ("element.cuh", "value;\n    }\n    __syncwarp();", "value;\n    }"),
    "reads beyond shared memory": (
        "forward.cuh",
        "i < total; i += lanes) to[i] = out[i]",
        "i < total + 9000; i += lanes) to[i] = out[i]",
    ),
    "writes beyond the archive": ("forward.cuh", "to[i] = out[i]", "to[i + f.words_room] = out[i]"),
}


class Sink:
    """Where a run's payload goes."""

    def __init__(self, chunks: int, words: int) -> None:
        self.sizes, self.words = np.zeros(chunks, np.uint32), np.zeros(chunks * words, np.uint32)


def target(sanitizer: str, fault: str | None) -> Target:
    host = registry().target("host")
    headers = {}
    if fault is not None:
        name, text, other = FAULTS[fault]
        source = (Path(briquette_warp.__file__).parent / "cuda" / name).read_text(encoding="utf-8")
        assert source.count(text) == 1, f"{name} does not hold {text!r} once"
        headers[f"briquette_warp/cuda/{name}"] = source.replace(text, other)
    made: Target = type(host)(extra_flags=FLAGS[sanitizer], headers=headers)  # type: ignore[call-arg]
    return made


def main() -> None:
    sanitizer, preset = sys.argv[1:3]
    compiler = target(sanitizer, sys.argv[3] if len(sys.argv) > 3 else None)
    plan = bq.Pipeline.from_preset(preset).plan("float32", "numpy")

    def program(direction: Direction) -> tuple[EmulatedProgram, Composition]:
        parts = Composition(tuple(chain_members(plan.graph, plan.types, plan.graph.order, direction)), plan.chunk)
        return EmulatedProgram(parts, direction, compiler), parts

    (forward, parts), (inverse, _) = program("forward"), program("inverse")
    for n in (600, 2 * plan.chunk + 5):
        for share in (0.0, 0.1, 0.9):
            rng = np.random.default_rng(n)
            x = np.cumsum(rng.standard_normal(n)).astype(np.float32)
            x[rng.random(n) < share] = np.nan
            record, chunks = RunRecord(), -(-n // plan.chunk)
            run = GroupRun(record, n, plan.chunk, 1, Bound(1e-2), lambda chunks=chunks: Sink(chunks, parts.most_words))
            values = forward.forward(x, run)
            out = np.empty_like(x)
            inverse.inverse(values, GroupRun(record, n, plan.chunk, 1, out=out))
            assert np.array_equal(np.isnan(out), np.isnan(x))
            assert not (np.abs(out - x) > 1e-2).any()
    print("clean")


if __name__ == "__main__":
    main()

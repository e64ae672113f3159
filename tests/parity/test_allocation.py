"""Where streams between steps lie changes no byte; and the peaks that plans and runs state are what the allocator sees."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import PRESETS

import briquette as bq
from briquette.executor import Executable
from briquette.record import Bound, RunRecord

COUNT: Final = 1 << 20
#: one stream of codes into two coders
FAN_OUT: Final = """
[[stage]]
use = "linear-quantizer"
node = "quantizer"
[[stage]]
use = "plain-rate"
node = "rate"
[[stage]]
use = "lorenzo-1d"
node = "differences"
[[stage]]
use = "adaptive-bitplane"
node = "planes"
[[edge]]
from = "in"
to = "quantizer.in"
[[edge]]
from = "quantizer.codes"
to = "rate.in"
[[edge]]
from = "quantizer.codes"
to = "differences.in"
[[edge]]
from = "differences.out"
to = "planes.in"
"""
PIPELINES: Final = {**{name: name for name in PRESETS}, "fan-out": FAN_OUT}
WAYS: Final = [("numpy", "auto"), ("numpy", "off"), ("host", "off"), ("host", "auto")]


def pipeline(name: str) -> bq.Pipeline:
    return bq.Pipeline.from_toml(FAN_OUT) if name == "fan-out" else bq.Pipeline.from_preset(name)


def walk(count: int, seed: int = 0, dtype: str = "float32") -> NDArray[Any]:
    return np.cumsum(np.random.default_rng(seed).standard_normal(count)).astype(dtype)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize(("target", "fusion"), WAYS)
def test_archives_and_reconstructions_are_the_same(name: str, target: str, fusion: str) -> None:
    pipe = pipeline(name)
    for seed, count in enumerate([300_000, 299_999, 40]):  # the arena of the larger run, stale, serves the smaller ones
        x = walk(count, seed, "float64" if seed == 1 else "float32")
        made = pipe.compress(x, 1e-3, target=target, fusion=fusion)
        assert pipe.compress(x, 1e-3, target=target, fusion=fusion, allocation="preallocate") == made
        back = bq.decompress(made, target=target, fusion=fusion)
        again = bq.decompress(made, target=target, fusion=fusion, allocation="preallocate")
        assert again.tobytes() == back.tobytes()


@dataclass
class Room:
    """Memory for a payload that is there before a run begins."""

    sizes: NDArray[np.uint32]
    words: NDArray[np.uint32]


def held(work: Callable[[], object]) -> int:
    """Return the most bytes that `work` has allocated at once, NumPy's included, beside what there was before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def runs(run: Executable, x: NDArray[Any]) -> dict[Literal["forward", "inverse"], Callable[[], int]]:
    """Return what compresses and decompresses `x` into memory that exists, and gives the reported peak."""
    run.compile()  # what the compiler reads and says is no buffer of a run
    words = np.empty(2 * x.size, np.uint32)
    sizes = np.empty(-(-x.size // run.plan.chunk), np.uint32)
    record, sinks = run.forward(x, Bound(1e-3), 1)
    out = np.empty_like(x)

    def forward() -> int:
        made, _ = run.forward(x, Bound(1e-3), 1, lambda *_: Room(sizes, words))
        return int(made.results[""]["peak_stream_bytes"])  # type: ignore[arg-type]

    def inverse() -> int:
        back = RunRecord(record.state)
        run.inverse(sinks, back, x.size, 1, out)
        return int(back.results[""]["peak_stream_bytes"])  # type: ignore[arg-type]

    return {"forward": forward, "inverse": inverse}


@pytest.mark.serial
@pytest.mark.parametrize("fusion", ["off", "auto"])
@pytest.mark.parametrize("name", ["fast", "zigzag", "chunked", "packed-widths"])
def test_the_allocator_sees_the_peak_of_the_plan(name: str, fusion: str) -> None:
    x = walk(COUNT)
    slack = x.nbytes // 8  # offsets and side streams, which are no streams of elements
    pipe = pipeline(name)
    for allocation in ("minimal", "preallocate"):
        run = pipe.executable("float32", "host", fusion, allocation=allocation)
        for direction, work in runs(run, x).items():
            peaks: list[int] = []
            run.release()
            seen = held(lambda work=work, peaks=peaks: peaks.append(work()))  # type: ignore[misc]
            ours = peaks[0] - x.nbytes  # the input, or the output, is the caller's
            if allocation == "minimal":
                assert peaks[0] == run.plan.buffer_bytes(direction, COUNT)
                if fusion == "off" and direction == "inverse":
                    ours = max(ours, 2 * x.nbytes)  # codes and differences, before the output takes the place of the latter
            else:
                assert ours == run.layout(direction, COUNT).total
            assert ours <= seen <= ours + slack, (allocation, direction)
            if fusion == "auto":
                assert seen <= slack, "a buffer inside the group has been allocated"
            elif allocation == "preallocate":
                assert held(work) <= slack, "a second run has an arena already"


@pytest.mark.serial
def test_a_fan_out_holds_what_its_plan_says() -> None:
    x = walk(COUNT)
    for fusion in ("off", "auto"):
        for target in ("host", "numpy"):
            run = pipeline("fan-out").executable("float32", target, fusion)
            for direction, work in runs(run, x).items():
                assert work() == run.plan.buffer_bytes(direction, COUNT), (fusion, target, direction)


def test_threads_share_an_executable_and_no_arena() -> None:
    pipe = pipeline("fast")
    fields = [walk(100_000 + 1000 * i, i) for i in range(6)]
    expected = [pipe.compress(x, 1e-3, target="host", fusion="off") for x in fields]
    start = threading.Barrier(len(fields))

    def work(i: int) -> bool:
        start.wait(60)
        same = True
        for _ in range(20):
            made = pipe.compress(fields[i], 1e-3, target="host", fusion="off", allocation="preallocate")
            back = bq.decompress(made, target="host", fusion="off", allocation="preallocate")
            same = same and made == expected[i] and float(np.abs(back.astype("f8") - fields[i]).max()) <= 1e-3
        return same

    with ThreadPoolExecutor(len(fields)) as pool:
        assert all(pool.map(work, range(len(fields))))

"""Arenas: lifetimes coloured without overlap, and runs whose streams lie in one; the figures of the plan are what is held."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running_toys import Far, RunningHarness, ToyMemory, executable
from toys import BARRIER, HEAD, LOCAL, Toy, pipelines

from briquette.arena import Arenas, layout
from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, LookupFailed
from briquette.executor import Executable
from briquette.graph import Edge, Graph
from briquette.pipeline import chain
from briquette.plan import Buffer
from briquette.planner import make_plan
from briquette.ports import PortType
from briquette.record import RunRecord

# -- layouts ---------------------------------------------------------------------------------------------------


def buffer(i: int, born: int, dies: int) -> Buffer:
    return Buffer((f"n{i:03}", "out"), PortType("int32"), born, dies)


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[list[Buffer], list[int]]:
    spans = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5000)), max_size=12))
    return [buffer(i, born, born + more) for i, (born, more, _) in enumerate(spans)], [size for *_, size in spans]


@given(lifetimes(), st.sampled_from([1, 16, 256]))
def test_buffers_alive_at_once_never_overlap(made: tuple[list[Buffer], list[int]], align: int) -> None:
    buffers, sizes = made
    found = layout(buffers, sizes, align)
    places = [found.offsets[b.port, b.born] for b in buffers]
    ends = [at + size for at, size in zip(places, sizes, strict=True)]
    assert all(at % align == 0 and at >= 0 for at in places)
    for i, a in enumerate(buffers):
        for j, b in enumerate(buffers[:i]):
            if a.born <= b.dies and b.born <= a.dies and sizes[i] and sizes[j]:
                assert ends[i] <= places[j] or ends[j] <= places[i]
    alive = [sum(s for b, s in zip(buffers, sizes, strict=True) if b.born <= t <= b.dies) for t in range(16)]
    assert found.peak == max(alive)
    assert found.peak <= found.total <= sum(-(-s // align) * align for s in sizes)
    assert found.total == max(ends, default=0)


@given(lifetimes(), st.randoms())
def test_the_order_of_the_buffers_is_nothing(made: tuple[list[Buffer], list[int]], rng: random.Random) -> None:
    pairs = list(zip(*made, strict=True))
    shuffled = list(pairs)
    rng.shuffle(shuffled)
    assert layout([b for b, _ in pairs], [s for _, s in pairs]) == layout([b for b, _ in shuffled], [s for _, s in shuffled])


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=12))
def test_a_chain_takes_no_more_than_its_widest_pair(sizes: list[int]) -> None:
    buffers = [buffer(i, i, i + 1) for i in range(len(sizes))]
    found = layout(buffers, sizes, 1)
    assert found.total == found.peak == max(a + b for a, b in zip([0, *sizes], [*sizes, 0], strict=True))


def test_a_pool_keeps_what_comes_back_and_replaces_what_is_too_small() -> None:
    pool = Arenas()
    small, other = pool.take(100, None, None), pool.take(50, None, None)
    assert small is not other
    pool.give(small, None, None)
    pool.give(other, None, None)
    assert pool.take(60, None, None) is small  # the smallest that fits
    large = pool.take(1000, None, None)  # `other` made way for it
    assert large.nbytes == 1000
    pool.give(large, None, None)
    assert pool.take(10, None, None) is large
    pool.give(large, None, None)
    pool.clear()
    assert pool.take(10, None, None) is not large


# -- runs ------------------------------------------------------------------------------------------------------


def codes(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-100, 100, count).astype(np.int32)


def near(x: Any) -> Any:
    return x.array if isinstance(x, Far) else x


def reported(record: RunRecord) -> int:
    peak = record.results[""]["peak_stream_bytes"]
    assert isinstance(peak, int)
    return peak


def round_trip(run: Executable, source: np.ndarray[Any, Any]) -> tuple[dict[Any, bytes], tuple[int, int]]:
    """Compress and decompress; return the sinks' bytes and the peaks reported."""
    record, sinks = run.forward(source, None, 1)
    peak = reported(record)
    out = np.full_like(source, -12345)
    assert run.inverse(sinks, record, source.size, 1, out) is out
    assert np.array_equal(out, source)
    held = {port: near(value).tobytes() for port, value in sinks.items()}
    return held, (peak, reported(record))


@given(pipelines(), st.sampled_from(["auto", "off"]), st.integers(1, 4), st.booleans())
def test_allocation_changes_no_value_and_holds_what_the_plan_says(graph: Graph, fusion: str, limit: int, far: bool) -> None:
    ways = ("minimal", "preallocate")
    runs = {a: executable(graph, fusion, a, ToyMemory() if far else None, limit) for a in ways}
    count = 1024
    for seed in range(3):  # an arena used again holds what the last run left there
        source = codes(count, seed)
        made = {a: round_trip(run, source) for a, run in runs.items()}
        assert made["minimal"][0] == made["preallocate"][0]
        plan = runs["minimal"].plan
        expected = (plan.buffer_bytes("forward", count), plan.buffer_bytes("inverse", count))
        assert made["minimal"][1] == expected
        assert all(p >= e for p, e in zip(made["preallocate"][1], expected, strict=True))


@settings(max_examples=25)
@given(pipelines(), st.sampled_from(["auto", "off"]), st.integers(1, 3 << 18))
def test_walks_in_pieces_fill_the_arena(graph: Graph, fusion: str, count: int) -> None:
    for allocation in ("minimal", "preallocate"):
        run = Executable(make_plan(graph, "int32", None, [], fusion), None, {}, allocation)
        for seed in range(2):
            _, peaks = round_trip(run, codes(count, seed))
            if allocation == "minimal":
                assert peaks == (run.plan.buffer_bytes("forward", count), run.plan.buffer_bytes("inverse", count))


def linear(*names: str) -> Graph:
    return Graph.build(dict.fromkeys(names, LOCAL), None)


def test_only_what_lies_between_kernels_is_in_the_arena() -> None:
    staged = executable(linear(*"abcd"), "off", "preallocate")
    fused = executable(linear(*"abcd"), "auto", "preallocate")
    half = executable(linear(*"abcd"), "auto", "preallocate", limit=2)
    for direction in ("forward", "inverse"):
        assert staged.layout(direction, 1000).total == 4096 + 4000
        assert len(staged.layout(direction, 1000).offsets) == 3
        assert half.layout(direction, 1000).total == 4000
        assert fused.layout(direction, 1000).total == 0
    assert {port for port, _ in half.layout("forward", 1000).offsets} == {("b", "out")}


def test_peaks_reported() -> None:
    count = 1024
    for limit, fusion, between, alive in [(9, "off", 2, 2), (2, "auto", 1, 1), (9, "auto", 0, 0)]:
        for allocation, held in [("minimal", alive), ("preallocate", between)]:
            run = executable(linear(*"abcd"), fusion, allocation, limit=limit)
            record, _ = run.forward(codes(count, 0), None, 1)
            at_the_end = 1 if allocation == "preallocate" or fusion == "auto" else 0  # the output stands beside the arena
            assert record.results[""]["peak_stream_bytes"] == 4 * count * (1 + held + at_the_end), (fusion, allocation)


def test_a_fan_out_given_back_twice_is_counted_twice() -> None:
    edges = [Edge("a", "out", "b", "in"), Edge("a", "out", "c", "in")]
    run = executable(Graph.build(dict.fromkeys("abc", LOCAL), edges), "off", "preallocate")
    inverse = run.plan.inverse
    assert [(b.port, b.born, b.dies) for b in inverse.buffers if b.again] == [(("a", "out"), 1, 1)]
    assert set(run.layout("inverse", 64).offsets) == {(("a", "out"), 0), (("a", "out"), 1)}
    assert run.plan.buffer_bytes("inverse", 64) == 256 * 3  # both, beside the first branch's sink, which is not read any more
    round_trip(run, codes(64, 0))


def test_one_arena_serves_every_run_in_both_directions() -> None:
    memory = ToyMemory()
    run = executable(linear(*"abcde"), "off", "preallocate", memory)
    need = run.preallocate(2048)
    assert need == 2 * 8192
    assert memory.log == [("reserve", need)]
    for seed in range(4):
        memory.log.clear()
        out = Far(np.zeros(2048 - seed, np.int32))
        source = Far(codes(2048 - seed, seed))
        record, sinks = run.forward(source, None, 1)
        assert memory.log == [("empty", source.nbytes)]  # the sink, which is the caller's
        run.inverse(sinks, record, source.size, 1, out)
        assert len(memory.log) == 1
        assert np.array_equal(out.array, source.array)
    run.release()
    round_trip(run, codes(2048, 9))
    assert ("reserve", need) in memory.log


@dataclass(frozen=True)
class PassesThrough(Toy):
    """Gives back its very input, which may lie in an arena."""

    name: ClassVar[str] = "passes-through"
    access: FusionAccess = FusionAccess.UNFUSABLE

    def forward(self, inputs: Any, scope: Any) -> Any:
        return {"out": inputs["in"]}

    def inverse(self, outputs: Any, scope: Any) -> Any:
        return {"in": outputs["out"]}


def test_a_stage_that_gives_back_its_input_keeps_it() -> None:
    nodes = {"a": LOCAL, "x": PassesThrough(), "b": LOCAL, "c": LOCAL, "d": LOCAL}
    edges = [Edge("a", "out", "x", "in"), Edge("x", "out", "b", "in"), Edge("b", "out", "c", "in"), Edge("x", "out", "d", "in")]
    graph = Graph.build(nodes, edges)
    run = executable(graph, "off", "preallocate")
    offsets = run.layout("forward", 512).offsets
    assert len(set(offsets.values())) < len(offsets)  # b.out takes the place of a.out, which x.out is a view of
    for seed in range(2):
        source = codes(512, seed)
        assert round_trip(run, source)[0] == round_trip(executable(graph, "off", "minimal"), source)[0]
    tail = executable(Graph.build({"a": LOCAL, "x": PassesThrough()}, None), "off", "preallocate")
    _, first = tail.forward(codes(512, 0), None, 1)
    tail.forward(codes(512, 1), None, 1)
    assert np.array_equal(near(first["x", "out"]), codes(512, 0) + 1)  # what a run has handed over stays


def test_runs_at_the_same_time_have_arenas_of_their_own() -> None:
    run = executable(Graph.build({"a": HEAD, "b": LOCAL, "x": BARRIER, "c": LOCAL, "d": LOCAL}, None), "off", "preallocate")
    start = threading.Barrier(6)

    def work(seed: int) -> None:
        start.wait(30)
        for i in range(60):
            round_trip(run, codes(20_000 + 13 * seed, 100 * seed + i))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@pytest.mark.parametrize("far", [False, True])
def test_a_run_that_fails_leaves_the_executable_usable(far: bool) -> None:
    run = executable(linear(*"abc"), "off", "preallocate", ToyMemory() if far else None)
    harness = run.harnesses["toy-strategy"]
    assert isinstance(harness, RunningHarness)
    harness.failing = frozenset("b")
    with pytest.raises(ArchiveError, match="a program that fails"):
        run.forward(codes(100, 0), None, 1)
    harness.failing = frozenset()
    run._programs.clear()
    round_trip(run, codes(100, 0))


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LookupFailed, match="'lavish' is unknown; use one of minimal, preallocate"):
        chain(LOCAL).executable("int32", "numpy", allocation="lavish")

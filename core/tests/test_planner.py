"""The planner: groups, reasons, elided buffers, liveness; and the invariants of every plan."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import BARRIER, HEAD, LOCAL, Toy, ToyHarness, ToyTarget, pipelines

import briquette
from briquette.declare import FusionAccess
from briquette.errors import DeclarationError, FusionError, UsageError
from briquette.executor import Executable
from briquette.graph import Edge, Graph
from briquette.plan import Plan
from briquette.planner import make_plan


def planned(nodes: dict[str, Toy], edges: list[Edge] | None = None, fusion: str = "auto", refuses: Any = None) -> Plan:
    return make_plan(Graph.build(nodes, edges), "int32", ToyTarget(), [ToyHarness(refuses=refuses)], fusion)


def reason(plan: Plan, src: str, dst: str) -> str:
    return next(r.reason for r in plan.forward.reasons if (r.src, r.dst) == (src, dst))


def test_neighbours_that_may_follow_one_another_fuse_both_ways() -> None:
    plan = planned({"a": HEAD, "b": LOCAL, "c": LOCAL})
    assert plan.forward.groups == plan.inverse.groups == (("a", "b", "c"),)
    assert plan.forward.launches == 1
    assert plan.forward.elided == (("a", "out"), ("b", "out"))
    assert not plan.forward.reasons


def test_the_error_of_a_declaration_names_the_stage() -> None:
    with pytest.raises(DeclarationError, match=r"stage 'toy' declares: span 100000 is outside 1\.\.65536 elements"):
        planned({"a": Toy(access=FusionAccess.REGION_LOCAL, span=100_000)})


def test_the_error_of_an_inverse_declaration_names_the_stage() -> None:
    with pytest.raises(DeclarationError, match="stage 'toy' declares: an ELEMENTWISE stage has span 1, not 8"):
        planned({"a": Toy(access=FusionAccess.REGION_LOCAL, span=8, inverse_access=FusionAccess.ELEMENTWISE)})


def test_off_runs_each_stage_as_a_kernel_of_its_own() -> None:
    plan = planned({"a": LOCAL, "b": LOCAL}, fusion="off")
    assert [s.kind for s in plan.forward.steps] == ["kernel", "kernel"]
    assert reason(plan, "a", "b") == "fusion is off"
    assert not plan.forward.elided


def test_a_barrier_cuts_the_chain_and_says_so() -> None:
    plan = planned({"a": LOCAL, "b": LOCAL, "x": BARRIER, "c": LOCAL, "d": LOCAL})
    assert plan.forward.groups == (("a", "b"), ("c", "d"))
    assert "x declares no role: UNFUSABLE" in reason(plan, "b", "x")
    assert plan.forward.transfers == ("x",)
    assert "a transfer on a device" in plan.explain()


def test_the_set_of_groups_that_removes_most_launches_is_chosen() -> None:
    # a..c or c..e would fuse, not more than three at once: two groups of three share no node, so 2 + 1 is best
    plan = planned(dict.fromkeys("abcde", LOCAL), refuses=lambda nodes: "four are too many" if len(nodes) > 3 else None)
    assert sum(len(g) - 1 for g in plan.forward.groups) == 3
    assert (
        reason(plan, *next((a[-1], b[0]) for a, b in zip(plan.forward.groups, plan.forward.groups[1:], strict=False)))
        == "four are too many"
    )


def test_fan_out_is_a_barrier() -> None:
    plan = planned({"a": LOCAL, "b": LOCAL, "c": LOCAL}, [Edge("a", "out", "b", "in"), Edge("a", "out", "c", "in")])
    assert plan.forward.groups == ()
    assert "fans out to b, c" in reason(plan, "a", "b")


def test_an_undeclared_branch_is_a_barrier_and_a_declared_one_is_not() -> None:
    undeclared = Toy(outs=("out", "kept"))
    assert "without declaring it in fused_aux_outputs" in reason(planned({"a": undeclared, "b": LOCAL}), "a", "b")
    plan = planned({"a": HEAD, "b": LOCAL})
    assert plan.forward.groups == (("a", "b"),)
    assert ("a", "kept") in {b.port for b in plan.forward.buffers}


def test_an_aux_port_may_feed_a_staged_stage() -> None:
    nodes = {"a": HEAD, "b": LOCAL, "s": BARRIER}
    plan = planned(nodes, [Edge("a", "out", "b", "in"), Edge("a", "kept", "s", "in")])
    assert plan.forward.groups == (("a", "b"),)
    assert "side port" in reason(plan, "a", "s")
    kept = next(b for b in plan.forward.buffers if b.port == ("a", "kept"))
    assert (kept.born, kept.dies) == (0, 1)


def test_directions_are_gated_apart() -> None:
    one_way = Toy(inverse_access=FusionAccess.UNFUSABLE)
    plan = planned({"a": LOCAL, "b": one_way})
    assert plan.forward.groups == (("a", "b"),)
    assert plan.inverse.groups == ()


def test_a_missing_harness_and_mixed_strategies_are_reasons() -> None:
    other = Toy(strategy="elsewhere")
    assert "'elsewhere' is not installed (installed: toy-strategy)" in reason(planned({"a": other, "b": other}), "a", "b")
    assert "different harnesses: elsewhere, toy-strategy" in reason(planned({"a": LOCAL, "b": other}), "a", "b")


def test_force_raises_where_declared_neighbours_do_not_fuse() -> None:
    with pytest.raises(FusionError, match=re.escape("a | b (forward): no")):
        planned({"a": LOCAL, "b": LOCAL}, fusion="force", refuses=lambda nodes: "no" if len(nodes) > 1 else None)
    assert planned({"a": LOCAL, "x": BARRIER}, fusion="force").forward.groups == ()
    with pytest.raises(UsageError, match="'sometimes' is unknown; use one of off, auto, force"):
        planned({"a": LOCAL}, fusion="sometimes")


def test_a_group_is_one_point_of_liveness() -> None:
    fused, staged = planned(dict.fromkeys("abcd", LOCAL)), planned(dict.fromkeys("abcd", LOCAL), fusion="off")
    assert fused.buffer_bytes("forward", 1000) == 2 * 4000  # input and output
    assert staged.buffer_bytes("forward", 1000) == 3 * 4000  # the input stays the caller's
    assert len(fused.forward.buffers) == 2


def test_the_reference_target_plans_no_kernels() -> None:
    plan = make_plan(Graph.build({"a": LOCAL, "x": BARRIER, "b": LOCAL}, None), "int32", None, [], "auto")
    assert plan.forward.launches == 0
    assert [s.nodes for s in plan.forward.steps] == [("a",), ("x",), ("b",)]


def test_no_stage_policy_or_harness_is_named_in_core() -> None:
    words = re.compile(
        r"lorenzo|bitpack|bitplane|plain.?rate|zigzag|negabinary|bitshuffle|huffman|linear.?quantizer|warp", re.IGNORECASE
    )
    root = Path(briquette.__file__).parent
    found = [
        f"{p.relative_to(root)}:{i}"
        for p in root.rglob("*.py")
        for i, line in enumerate(p.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert not found


# -- invariants over random pipelines --------------------------------------------------------------------------


@given(pipelines(), st.sampled_from(["auto", "off"]), st.integers(1, 5))
def test_invariants_of_every_plan(graph: Graph, fusion: str, limit: int) -> None:
    harness = ToyHarness(refuses=lambda nodes: "too long" if len(nodes) > limit else None)
    plan = make_plan(graph, "int32", ToyTarget(), [harness], fusion)
    rank = {n: i for i, n in enumerate(graph.order)}
    for direction in (plan.forward, plan.inverse):
        placed = [n for s in direction.steps for n in s.nodes]
        assert sorted(placed) == sorted(graph.nodes)  # every stage once: groups never overlap
        done: set[str] = set()
        steps = direction.steps if direction.direction == "forward" else direction.steps[::-1]
        for step in steps:
            assert sorted(step.nodes, key=rank.__getitem__) == list(step.nodes)  # order is kept
            for node in step.nodes:
                source = graph.sources[node, "in"][0]
                assert source == "" or source in done
                done.add(node)
        for group in direction.groups:
            for a, b in itertools.pairwise(group):
                assert graph.consumers[a, "out"] == ((b, "in"),)  # a fan-out of the main path is a barrier
                assert set(graph.nodes[a].outputs[1:]) <= set(graph.nodes[a].fused_aux_outputs())
        alive = {b.port for b in direction.buffers}
        assert alive.isdisjoint(direction.elided)
        assert {(n, p) for n in graph.nodes for p in graph.nodes[n].fused_aux_outputs()} <= alive  # declared aux ports stay
        together = {(a, b) for g in direction.groups for a, b in itertools.pairwise(g)}
        apart = {(r.src, r.dst) for r in direction.reasons}
        inner = {(e.src, e.dst) for e in graph.edges if e.src}
        assert together | apart == inner  # every edge fused, or carries a reason
        assert together.isdisjoint(apart)
        if fusion == "off":
            assert not together


@given(pipelines(), st.lists(st.integers(-100, 100), min_size=1, max_size=300))
def test_the_reference_inverts_every_pipeline(graph: Graph, values: list[int]) -> None:
    source = np.array(values, np.int32)
    for fusion in ("auto", "off"):
        run = Executable(make_plan(graph, "int32", None, [], fusion), None, {})
        record, sinks = run.forward(source, None, 1)
        assert set(sinks) == set(graph.sinks)
        out = np.full_like(source, -12345)
        assert np.array_equal(run.inverse(sinks, record, source.size, 1, out), source)

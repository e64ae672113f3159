"""The DAG: what is refused, with both ends named, and what follows from its shape."""

from __future__ import annotations

import re

import pytest
from toys import Toy

from briquette.declare import FusionAccess
from briquette.errors import PipelineError
from briquette.graph import Edge, Graph

PLAIN = Toy(access=FusionAccess.UNFUSABLE)
TWO_IN = Toy(access=FusionAccess.UNFUSABLE, ins=("in", "side"))
TWO_OUT = Toy(access=FusionAccess.UNFUSABLE, outs=("out", "side"))


def test_a_chain_connects_main_ports() -> None:
    graph = Graph.build({"a": PLAIN, "b": PLAIN}, None)
    assert graph.edges == (Edge("", "in", "a", "in"), Edge("a", "out", "b", "in"))
    assert graph.linear
    assert graph.sinks == (("b", "out"),)


def test_order_follows_the_edges_not_the_order_of_adding() -> None:
    graph = Graph.build({"b": PLAIN, "a": PLAIN}, [Edge("", "in", "a", "in"), Edge("a", "out", "b", "in")])
    assert graph.order == ("a", "b")
    assert not graph.linear


def test_fan_out_and_several_sinks() -> None:
    graph = Graph.build({"a": TWO_OUT, "b": PLAIN, "c": PLAIN}, [Edge("a", "out", "b", "in"), Edge("a", "out", "c", "in")])
    assert graph.consumers["a", "out"] == (("b", "in"), ("c", "in"))
    assert graph.sinks == (("c", "out"), ("b", "out"), ("a", "side"))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ({}, None, "at least one stage"),
        ({"a": PLAIN}, [Edge("", "in", "z", "in")], "there is no node 'z'"),
        ({"a": PLAIN}, [Edge("z", "out", "a", "in"), Edge("", "in", "a", "in")], "there is no node 'z'"),
        ({"a": PLAIN, "b": PLAIN}, [Edge("a", "nope", "b", "in")], "a has no output 'nope'; it has: out"),
        (
            {"a": PLAIN, "b": PLAIN},
            [Edge("a", "out", "b", "nope"), Edge("a", "out", "b", "in")],
            "b has no input 'nope'; it has: in",
        ),
        (
            {"a": PLAIN, "b": PLAIN},
            [Edge("", "in", "a", "in"), Edge("a", "out", "b", "in"), Edge("", "in", "b", "in")],
            "b.in is fed twice",
        ),
        ({"a": PLAIN, "b": TWO_IN}, [Edge("", "in", "a", "in"), Edge("a", "out", "b", "in")], "without a source: b.side"),
    ],
)
def test_malformed_graphs_are_refused(nodes: dict[str, Toy], edges: list[Edge] | None, message: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(message)):
        Graph.build(nodes, edges)


def test_a_cycle_is_named_node_by_node() -> None:
    edges = [Edge("", "in", "a", "in"), Edge("c", "out", "b", "in"), Edge("a", "out", "b", "side"), Edge("b", "out", "c", "in")]
    with pytest.raises(PipelineError, match=r"cycle: b -> c -> b|cycle: c -> b -> c"):
        Graph.build({"a": PLAIN, "b": TWO_IN, "c": PLAIN}, edges)


def test_a_dtype_mismatch_names_both_ends() -> None:
    class Picky(Toy):
        def output_types(self, inputs):  # type: ignore[no-untyped-def]
            if inputs["in"].dtype != "int32":
                raise PipelineError(f"takes int32, not {inputs['in']}")
            return super().output_types(inputs)

    graph = Graph.build({"a": PLAIN, "b": Picky()}, None)
    with pytest.raises(PipelineError, match=re.escape("takes int32, not float32 (a.out -> b.in carries float32)")):
        graph.types("float32")


@pytest.mark.parametrize(
    ("spans", "chunk"),
    [
        ((256, 32), 8192),
        ((1,), 8192),
        ((100,), 8100),
        ((100, 32), 8000),
        ((65536,), 65536),
        ((8192, 3), 24576),
        ((5000, 64), 40000),
    ],
)
def test_chunk_is_the_largest_multiple_up_to_8192_else_one_lcm(spans: tuple[int, ...], chunk: int) -> None:
    nodes = {f"n{i}": Toy(FusionAccess.REGION_LOCAL, span) for i, span in enumerate(spans)}
    assert Graph.build(nodes, None).chunk == chunk


def test_spans_without_a_common_chunk_are_refused() -> None:
    graph = Graph.build({"a": Toy(FusionAccess.REGION_LOCAL, 65521), "b": Toy(FusionAccess.REGION_LOCAL, 32)}, None)
    with pytest.raises(PipelineError, match="least common multiple 2096672, above 65536"):
        _ = graph.chunk

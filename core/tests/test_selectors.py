"""Selectors, the coders whose cost they ask, and optional inputs: graphs, plans and runs of toys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from toys import Toy, ToyHarness, ToyTarget

from briquette import tiles
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import DeclarationError, PipelineError
from briquette.executor import Executable
from briquette.graph import Edge, Graph
from briquette.plan import Plan
from briquette.planner import make_plan
from briquette.ports import Chunked, PortType, TileInfo
from briquette.record import RunRecord
from briquette.stage import PrimeContext, Scope, Stage

INFO = TileInfo(64, (0, 1))
SHIFT = Toy()  # adds one, ELEMENTWISE
REGION = Toy(FusionAccess.REGION_LOCAL, 64)


@dataclass(frozen=True)
class Chooser(Stage):
    """Mode 1 adds 100 to a tile's codes where that costs less, with a side word that says so."""

    name: ClassVar[str] = "chooser"
    outputs: ClassVar[tuple[str, ...]] = ("out", "choice")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        if inputs["in"].dtype == "float64":
            raise PipelineError("no float64")
        return {"out": inputs["in"], "choice": PortType(inputs["in"].dtype, "chunked", INFO)}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return tiles.max_words(INFO, chunk)

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        codes = inputs["in"]
        starts = np.arange(0, codes.size, 64)
        costs = [np.add.reduceat(scope.tail_cost(c), starts // scope.tail_segment) for c in (codes, codes + 100)]
        modes = (costs[1] + 1 < costs[0]).astype(np.uint8)
        modes[-1] %= scope.mode_limit(int(codes.size - starts[-1]), 2)
        side = np.full(int(modes.sum()), 100, np.uint32)
        out = codes + 100 * np.repeat(modes, 64)[: codes.size].astype(codes.dtype)
        return {"out": out.astype(codes.dtype), "choice": tiles.pack(modes, side, INFO, scope.count, scope.chunk)}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        modes, side = tiles.unpack(outputs["choice"], INFO, scope.count, scope.chunk)
        assert (side == 100).all()
        codes = outputs["out"]
        return {"in": (codes - 100 * np.repeat(modes, 64)[: codes.size]).astype(codes.dtype)}

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.TILE_SELECTOR, 64)

    def fused_op(self) -> FusedOp:
        return FusedOp("toy-strategy", "Chooser", "toys/cuda/toy.cuh")

    def fused_aux_outputs(self) -> tuple[str, ...]:
        return ("choice",)


@dataclass(frozen=True)
class Rate(Stage):
    """Writes every code as a word; costs what its tens say. Keeps ``choice`` behind each chunk's codes."""

    name: ClassVar[str] = "rate"
    optional_inputs: ClassVar[tuple[str, ...]] = ("choice",)
    segment: int = 32
    spare: int = 0
    refuses: str = ""
    forgets: bool = False

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        if "choice" in inputs and inputs["in"].dtype == self.refuses:
            raise PipelineError("no room")
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return chunk + (tiles.max_words(INFO, chunk) if "choice" in types else 0)

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        assert ("choice" in inputs) == ("choice" in scope.types)
        sizes, words = [], []
        for c in range(scope.chunks):
            part = [inputs["in"][c * scope.chunk : (c + 1) * scope.chunk].astype(np.uint32)]
            part += [inputs["choice"].cut(c, c + 1).words] if "choice" in inputs else []
            words += part
            sizes.append(sum(p.size for p in part))
        return {"out": Chunked(np.array(sizes, np.uint32), np.concatenate(words))}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        codes, choice = [], []
        for c in range(scope.chunks):
            words = outputs["out"].cut(c, c + 1).words
            n = min(scope.chunk, scope.count - c * scope.chunk)
            codes.append(words[:n])
            choice.append(Chunked(np.array([words.size - n], np.uint32), words[n:]))
        back: dict[str, Any] = {"in": np.concatenate(codes).astype(scope.types["in"].numpy)}
        return back if self.forgets or "choice" not in scope.types else {**back, "choice": Chunked.concatenate(choice)}

    def cost(self, codes: Any, scope: Scope) -> Any:
        assert codes.size == scope.count
        tens = np.pad(np.abs(codes.astype(np.int64)) // 10, (0, -codes.size % self.segment))
        return tens.reshape(-1, self.segment).sum(axis=1)

    def spare_meta_bits(self, dtype: str) -> int:
        return self.spare

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.SEGMENT_CODEC, self.segment)

    def fused_op(self) -> FusedOp:
        return FusedOp("toy-strategy", "Rate", "toys/cuda/toy.cuh")


@dataclass(frozen=True)
class Primed(Toy):
    """Adds what it was primed with, and counts how often that was."""

    name: ClassVar[str] = "primed"
    times: ClassVar[list[object]] = []

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Any]:
        self.times.append(ctx.source)
        return {"by": 5}

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"out": inputs["in"] + np.int32(scope.state["by"])}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"in": outputs["out"] - np.int32(scope.state["by"])}


SIDE = Edge("a", "choice", "c", "choice")


def built(*edges: tuple[str, str, str, str], **nodes: Stage) -> Graph:
    return Graph.build(nodes, [Edge(*e) for e in edges] or None)


def planned(graph: Graph, refuses: Any = None, fusion: str = "auto") -> Plan:
    return make_plan(graph, "int32", ToyTarget(), [ToyHarness(refuses=refuses)], fusion)


def reasons(plan: Plan) -> dict[tuple[str, str], str]:
    return {(r.src, r.dst): r.reason for r in plan.forward.reasons}


def field(n: int) -> np.ndarray:
    """Codes around 0, and tiles around -100, for which mode 1 pays."""
    rng = np.random.default_rng(n)
    base = np.repeat(rng.integers(0, 2, n // 64 + 1) * -100, 64)[:n]
    return (base + rng.integers(-5, 6, n)).astype(np.int32)


def round_trip(graph: Graph, n: int, fusion: str = "auto") -> dict[tuple[str, str], Any]:
    plan = make_plan(graph, "int32", None, [], fusion)
    run, codes = Executable(plan, None, {}), field(n)
    record, sinks = run.forward(codes, None, 1)
    back = run.inverse(sinks, RunRecord(record.state), n, 1, np.full(n, -1, np.int32))
    np.testing.assert_array_equal(back, codes)
    return sinks


# -- graphs --------------------------------------------------------------------------------------------------


def test_a_chain_connects_an_optional_input_to_the_side_port_of_its_name() -> None:
    for between in ({}, {"b": SHIFT}):
        graph = built(a=Chooser(), **between, c=Rate())
        assert graph.side == graph.beside_chain == (SIDE,)
        assert not graph.linear
        assert graph.sinks == (("c", "out"),)
        assert graph.inputs("c") == ("in", "choice")
        assert set(graph.types("int32")["c"]) == {"in", "choice", "out"}
        assert graph.tails == {"a": (*between, "c")}


def test_without_the_edge_the_side_port_is_a_sink() -> None:
    graph = Graph.build({"a": Chooser(), "c": Rate()}, [])
    assert graph.linear
    assert graph.beside_chain == ()
    assert graph.sinks == (("c", "out"), ("a", "choice"))
    assert graph.inputs("c") == ("in",)
    assert set(graph.types("int32")["c"]) == {"in", "out"}


def test_a_side_edge_alone_comes_beside_the_chain() -> None:
    assert built(("a", "choice", "c", "choice"), a=Chooser(), b=SHIFT, c=Rate()).side == (SIDE,)
    full = built(("a", "out", "c", "in"), ("a", "choice", "c", "choice"), a=Chooser(), c=Rate())
    assert set(full.edges) == set(built(a=Chooser(), c=Rate()).edges)


def test_what_a_stage_cannot_take_for_every_type_is_not_connected() -> None:
    assert not built(a=Chooser(), c=Rate(refuses="int64")).side
    assert built(a=Chooser(), c=Rate(refuses="float64")).side  # a type that the chain cannot work on anyway
    with pytest.raises(PipelineError, match=r"no room .*a\.choice -> c\.choice carries tiles of 64\[int64\]"):
        built(("a", "choice", "c", "choice"), a=Chooser(), c=Rate(refuses="int64")).types("int64")


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ({"a": Chooser()}, (), r"a\.out is read by nothing"),
        ({"a": Chooser(), "b": SHIFT}, (), r"b\.out is read by nothing"),
        ({"a": Chooser(), "b": REGION, "c": Rate()}, (), "b is REGION_LOCAL"),
        ({"a": Chooser(), "b": Toy(FusionAccess.UNFUSABLE), "c": Rate()}, (), "b is UNFUSABLE"),
        ({"a": Chooser(), "b": Chooser(), "c": Rate()}, (), "b is TILE_SELECTOR"),
        ({"a": Chooser(), "c": Toy(FusionAccess.SEGMENT_CODEC, 32)}, (), "c tells none"),
        ({"a": Chooser(), "c": Rate(segment=48)}, (), "tile of 64 elements is no whole number of segments of 48"),
        (
            {"a": Chooser(), "c": Rate(), "d": Rate()},
            (("a", "out", "c", "in"), ("a", "out", "d", "in")),
            "a.out fans out to c, d",
        ),
        (
            {"a": Chooser(), "c": Toy(ins=("in", "x"))},
            (("", "in", "a", "in"), ("a", "out", "c", "x"), ("", "in", "c", "in")),
            "c.x",
        ),
    ],
)
def test_a_selector_needs_a_coder_that_tells_its_cost(nodes: dict[str, Stage], edges: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as caught:
        built(*edges, **nodes)
    assert "a" in str(caught.value)
    assert "segment" in str(caught.value).lower()


# -- plans ---------------------------------------------------------------------------------------------------


def test_one_kernel_runs_both_ends_of_a_side_edge() -> None:
    plan = planned(built(h=SHIFT, a=Chooser(), b=SHIFT, c=Rate()))
    assert plan.forward.groups == plan.inverse.groups == (("h", "a", "b", "c"),)
    assert plan.forward.elided == (("h", "out"), ("a", "out"), ("a", "choice"), ("b", "out"))
    assert not plan.forward.reasons
    assert ("a", "choice") not in {b.port for b in (*plan.forward.buffers, *plan.inverse.buffers)}


def test_without_the_edge_the_side_port_leaves_the_group() -> None:
    plan = planned(Graph.build({"a": Chooser(), "c": Rate()}, []))
    assert plan.forward.groups == (("a", "c"),)
    assert ("a", "choice") in {b.port for b in plan.forward.buffers}


def test_a_group_never_holds_one_end_only() -> None:
    """A harness that runs chains of two at most fuses neither the selector nor the coder with what is between them."""
    plan = planned(built(h=SHIFT, a=Chooser(), b=SHIFT, c=Rate()), lambda nodes: "too long" if len(nodes) > 2 else None)
    for direction in (plan.forward, plan.inverse):
        assert not direction.groups
        assert {s.nodes: s.kind for s in direction.steps} == {
            ("h",): "kernel",
            ("a",): "numpy",
            ("b",): "kernel",
            ("c",): "numpy",
        }
        assert direction.transfers
    why = reasons(plan)
    assert why["a", "b"] == why["b", "c"] == "too long"
    assert why["a", "c"] == "a.choice feeds c.choice; the stages between them did not fuse, so both run as NumPy"


def test_the_smaller_group_that_holds_both_ends_is_taken() -> None:
    plan = planned(built(h=SHIFT, a=Chooser(), c=Rate()), lambda nodes: "too long" if len(nodes) > 2 else None)
    assert plan.forward.groups == (("a", "c"),)
    assert reasons(plan) == {("h", "a"): "too long"}


def test_fusion_off_and_the_reference_run_both_ends_as_numpy() -> None:
    plan = planned(built(a=Chooser(), c=Rate()), fusion="off")
    assert [s.kind for s in plan.forward.steps] == ["numpy", "numpy"]
    assert reasons(plan) == {("a", "c"): "fusion is off"}
    plan = make_plan(built(a=Chooser(), b=SHIFT, c=Rate()), "int32", None, [], "auto")
    assert [s.nodes for s in plan.forward.steps] == [("a", "b", "c")]
    assert "so both run as NumPy" in reasons(plan)["a", "c"]


# -- runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", ["auto", "off"])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 8192, 8193, (1 << 18) + 8192 + 100])
def test_round_trips_whole_and_in_pieces(n: int, fusion: str) -> None:
    held = round_trip(built(a=Chooser(), b=SHIFT, c=Rate()), n, fusion)
    apart = round_trip(Graph.build({"a": Chooser(), "b": SHIFT, "c": Rate()}, []), n, fusion)
    assert set(held) == {("c", "out")}
    assert set(apart) == {("c", "out"), ("a", "choice")}
    assert held["c", "out"].words.size == apart["c", "out"].words.size + apart["a", "choice"].words.size
    assert n < 300 or apart["a", "choice"].words.size > n // 8192 + 9, "mode 1 was never chosen"


def test_the_cost_is_that_of_what_the_stages_behind_make_of_the_codes() -> None:
    """-51 costs 5 and 49, its other mode, 4; when two stages behind have added one each, -49 costs 4 and 51 costs 5."""
    found = []
    for between in ({}, {"b": SHIFT, "bb": SHIFT}):
        graph = Graph.build({"a": Chooser(), **between, "c": Rate()}, [])
        run = Executable(make_plan(graph, "int32", None, [], "auto"), None, {})
        found.append(run.forward(np.full(64, -51, np.int32), None, 1)[1]["a", "choice"].words.tolist())
    assert found == [[1, 100], [0]]


@pytest.mark.parametrize("fusion", ["auto", "off"])
def test_side_ports_may_go_to_a_coder_elsewhere_and_to_several(fusion: str) -> None:
    edges = [("", "in", "a", "in"), ("a", "out", "c", "in"), ("", "in", "x", "in"), ("x", "out", "d", "in")]
    more = [("a", "choice", "d", "choice"), ("a", "choice", "c", "choice")]
    for side in (more[:1], more):
        for order in ("acxd", "xdac", "xacd"):
            made = {"a": Chooser(), "c": Rate(), "x": SHIFT, "d": Rate()}
            graph = built(*edges, *side, **{n: made[n] for n in order})
            for n in (100, (1 << 18) + 9000):
                sinks = round_trip(graph, n, fusion)
                assert set(sinks) == {("c", "out"), ("d", "out")}


@pytest.mark.parametrize("fusion", ["auto", "off"])
def test_stages_behind_a_selector_are_primed_once_and_before_it_asks(fusion: str) -> None:
    Primed.times.clear()
    round_trip(built(a=Chooser(), b=Primed(), c=Rate()), 1000, fusion)
    assert Primed.times == [None]


def test_modes_that_coders_have_no_room_for_are_not_chosen() -> None:
    graph = built(a=Chooser(), c=Rate(segment=64, spare=1))
    scope = Executable(make_plan(graph, "int32", None, [], "auto"), None, {})._scope("a", RunRecord(), 100, forward=True)
    assert (scope.tail_segment, scope.mode_limit(1, 2), scope.mode_limit(1, 4), scope.mode_limit(65, 4)) == (64, 2, 2, 4)
    free = Executable(make_plan(Graph.build(graph.nodes, []), "int32", None, [], "auto"), None, {})
    assert free._scope("a", RunRecord(), 100, forward=True).mode_limit(1, 4) == 4
    with pytest.raises(DeclarationError, match="knows no tail"):
        free._scope("a", RunRecord(), 100).tail_cost(np.zeros(1, np.int32))


def test_an_inverse_must_give_back_a_connected_input() -> None:
    with pytest.raises(DeclarationError, match="did not give back its input 'choice'"):
        round_trip(built(a=Chooser(), c=Rate(forgets=True)), 100)
    round_trip(Graph.build({"a": Chooser(), "c": Rate(forgets=True)}, []), 100)


def test_a_cost_of_the_wrong_shape_is_refused() -> None:
    @dataclass(frozen=True)
    class Short(Rate):
        def cost(self, codes: Any, scope: Scope) -> Any:
            return super().cost(codes, scope)[:-1]

    with pytest.raises(DeclarationError, match="the cost that c tells of 100 elements has the shape"):
        round_trip(built(a=Chooser(), c=Short()), 100)


def test_a_stage_without_a_cost_says_so() -> None:
    with pytest.raises(DeclarationError, match="tells no cost"):
        SHIFT.cost(np.zeros(1), Scope({}, {}, 1, 1))
    assert SHIFT.spare_meta_bits("int32") == 0

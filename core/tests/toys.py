"""Toy stages, a toy harness and a toy target, which declare and compute next to nothing, and random pipelines of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.graph import Edge, Graph
from briquette.harness import Direction, GroupProgram, Harness, Member
from briquette.ports import Chunked, PortType
from briquette.stage import Scope, Stage
from briquette.target import KernelSource, Module, Target


@dataclass(frozen=True)
class Toy(Stage):
    """Adds one on the way in; its role, ports and strategy are parameters."""

    name: ClassVar[str] = "toy"
    access: FusionAccess = FusionAccess.ELEMENTWISE
    span: int = 1
    strategy: str = "toy-strategy"
    outs: tuple[str, ...] = ("out",)
    ins: tuple[str, ...] = ("in",)
    aux: tuple[str, ...] = ()
    inverse_access: FusionAccess | None = None
    makes: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.ins

    @property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.outs

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        dtype = self.makes or inputs[self.ins[0]].dtype
        main: PortType = PortType(dtype, "chunked" if self.access is FusionAccess.SEGMENT_CODEC else "stream")
        return {self.outs[0]: main, **{p: PortType(dtype) for p in self.outs[1:]}}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return chunk

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(self.access, self.span)

    def inverse_fusion_spec(self) -> FusionSpec:
        return FusionSpec(self.inverse_access or self.access, self.span)

    def fused_op(self) -> FusedOp | None:
        return FusedOp(self.strategy, "Toy", "toys/cuda/toy.cuh") if self.access is not FusionAccess.UNFUSABLE else None

    def fused_aux_outputs(self) -> tuple[str, ...]:
        return self.aux

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        made = inputs[self.ins[0]] + 1
        main: Any = made
        if self.access is FusionAccess.SEGMENT_CODEC:
            sizes = np.minimum(np.full(scope.chunks, scope.chunk), scope.count - scope.chunk * np.arange(scope.chunks)).astype(
                np.uint32
            )
            main = Chunked(sizes, made.astype(np.uint32))
        return {self.outs[0]: main, **dict.fromkeys(self.outs[1:], made)}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        value = outputs[self.outs[0]]
        array = value.words.astype(scope.types[self.ins[0]].numpy) if isinstance(value, Chunked) else value
        return {p: array - np.array(1, array.dtype) for p in self.ins}


@dataclass
class ToyHarness(Harness):
    """Fuses everything but what `refuses` says of a chain's node names."""

    name: str = "toy-strategy"  # type: ignore[misc]
    refuses: Any = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def refuse(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> str | None:
        nodes = tuple(m.node for m in chain)
        self.asked.append(nodes)
        return self.refuses(nodes) if self.refuses else None

    def program(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> GroupProgram:
        raise AssertionError("planning compiles nothing")


class ToyTarget(Target):
    name = "toy"
    dialect = "toy"

    def unavailable(self) -> str | None:
        return None

    def compile(self, source: KernelSource) -> Module:
        raise AssertionError("planning compiles nothing")

    def map(self, work: Any, items: Sequence[Any], threads: int) -> list[Any]:
        return [work(i) for i in items]


BARRIER = Toy(access=FusionAccess.UNFUSABLE)
LOCAL = Toy()
HEAD = Toy(outs=("out", "kept"), aux=("kept",))

stages = st.sampled_from(
    [
        LOCAL,
        HEAD,
        BARRIER,
        Toy(FusionAccess.REGION_LOCAL, 64),
        Toy(strategy="elsewhere"),
        Toy(outs=("out", "loose")),
        Toy(inverse_access=FusionAccess.UNFUSABLE),
    ]
)


@st.composite
def pipelines(draw: st.DrawFn) -> Graph:
    """A random tree of toys: each reads some earlier output."""
    count = draw(st.integers(1, 9))
    nodes: dict[str, Toy] = {}
    edges: list[Edge] = []
    ports = [("", "in")]
    for i in range(count):
        stage = draw(stages)
        src, port = draw(st.sampled_from(ports[-3:])) if i else ("", "in")
        nodes[f"n{i}"] = stage
        edges.append(Edge(src, port, f"n{i}", "in"))
        ports += [(f"n{i}", p) for p in stage.outs]
    return Graph.build(nodes, edges)

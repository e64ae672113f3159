"""What a plan says: which stages run together, which alone, why not more, and which buffers never exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from .graph import Graph, NodePort
from .harness import Direction
from .ports import PortType

#: how a step runs: several stages as one kernel, one stage as one kernel, or the NumPy reference
StepKind = Literal["fused", "kernel", "numpy"]


class Step(NamedTuple):
    """One step of a plan.

    Attributes
    ----------
    nodes : tuple of str
        In stream order. A ``numpy`` step of several nodes walks the stream in pieces that stay in cache.
    kind : {"fused", "kernel", "numpy"}
    harness : str
        Empty for a ``numpy`` step, and for a stage that brings its own program (`Stage.staged_kernel`).
    """

    nodes: tuple[str, ...]
    kind: StepKind
    harness: str = ""


class EdgeReason(NamedTuple):
    """Why the stages at both ends of an edge do not run in one kernel."""

    src: str
    dst: str
    reason: str


class Buffer(NamedTuple):
    """A materialized port: alive from the step that makes it to the last that reads it (both included).

    Where `again` is set, an earlier step has made the port already (each branch of a fan-out gives it back when
    decompressing): this one is dropped after its step.
    """

    port: NodePort
    type: PortType
    born: int
    dies: int
    again: bool = False


class DirectionPlan(NamedTuple):
    """The plan of one direction; steps are in execution order."""

    direction: Direction
    steps: tuple[Step, ...]
    reasons: tuple[EdgeReason, ...]
    elided: tuple[NodePort, ...]
    buffers: tuple[Buffer, ...]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The nodes of each fused group."""
        return tuple(s.nodes for s in self.steps if s.kind == "fused")

    @property
    def launches(self) -> int:
        """Kernels launched, one for each fused group and each stage that runs as a kernel of its own."""
        return sum(1 for s in self.steps if s.kind != "numpy")

    @property
    def transfers(self) -> tuple[str, ...]:
        """Nodes that run as NumPy inside a plan that otherwise runs kernels."""
        return tuple(n for s in self.steps if s.kind == "numpy" for n in s.nodes) if self.launches else ()


@dataclass(frozen=True, eq=False)
class Plan:
    """How a pipeline runs on one target, for one input dtype: both directions."""

    graph: Graph
    dtype: str
    target: str
    fusion: str
    chunk: int
    types: Mapping[str, Mapping[str, PortType]]
    forward: DirectionPlan
    inverse: DirectionPlan

    @cached_property
    def random_access(self) -> bool:
        """Whether decompression may begin at any chunk: no stage's inverse looks beyond its span, and spans divide a chunk."""
        specs = {node: stage.random_access_spec() for node, stage in self.graph.nodes.items()}
        if not all(spec.fusable for spec in specs.values()):
            return False
        items = {node: self.types[node][self.graph.nodes[node].inputs[0]].numpy.itemsize for node in specs}
        return all(self.chunk % spec.elements(items[node]) == 0 for node, spec in specs.items())

    def direction(self, which: Direction) -> DirectionPlan:
        return self.forward if which == "forward" else self.inverse

    def buffer_bytes(self, which: Direction, count: int) -> int:
        """Return the peak bytes of stream buffers alive at once for `count` elements, elided ones excluded.

        Chunked ports have data-dependent sizes and are not counted; the input and the output are.
        """
        plan = self.direction(which)
        alive = [0] * max(len(plan.steps), 1)
        for b in plan.buffers:
            if b.type.layout == "stream":
                for step in range(b.born, b.dies + 1):
                    alive[step] += count * b.type.itemsize
        return max(alive)

    def explain(self, count: int | None = None) -> str:
        """Return the plan in plain words: groups, reasons, launches, buffers that never exist, bytes."""
        lines = [f"plan for {self.dtype} on target {self.target}, fusion {self.fusion}, chunks of {self.chunk} elements"]
        for plan in (self.forward, self.inverse):
            title = "compress" if plan.direction == "forward" else "decompress"
            lines.append(f"{title}: {plan.launches} kernel launch{'es' if plan.launches != 1 else ''}")
            for i, step in enumerate(plan.steps, 1):
                lines.append(f"  {i}. {_step_words(step)}")
            for why in plan.reasons:
                lines.append(f"  not fused: {why.src} | {why.dst}: {why.reason}")
            if plan.elided:
                lines.append("  never allocated: " + ", ".join(f"{n}.{p}" for n, p in plan.elided))
            if plan.transfers:
                lines.append("  runs as NumPy between kernels (a transfer on a device): " + ", ".join(plan.transfers))
            if count is not None:
                lines.append(f"  peak stream buffers: {self.buffer_bytes(plan.direction, count):,} bytes for {count:,} elements")
        return "\n".join(lines)


def _step_words(step: Step) -> str:
    names = " + ".join(step.nodes)
    if step.kind == "fused":
        return f"fused by {step.harness}: {names}"
    if step.kind == "kernel":
        return f"kernel of its own ({step.harness or 'the stage'}): {names}"
    return f"NumPy{', walked in pieces' if len(step.nodes) > 1 else ''}: {names}"

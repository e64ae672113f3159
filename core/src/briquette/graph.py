"""The pipeline as a DAG: nodes, ports, edges, types; built once, then read by planner and executor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from .errors import DeclarationError, PipelineError
from .ports import PortType
from .stage import Stage

#: the pipeline's input, as a source of edges
INPUT: Final = ""
INPUT_PORT: Final = "in"
#: largest archive chunk built from several spans, in elements; one lcm may exceed it
CHUNK_TARGET: Final = 8192
CHUNK_LIMIT: Final = 65_536

NodePort = tuple[str, str]


@dataclass(frozen=True)
class Edge:
    """One connection, from an output port (or the pipeline's input) to an input port."""

    src: str
    src_port: str
    dst: str
    dst_port: str

    def __str__(self) -> str:
        source = f"{self.src}.{self.src_port}" if self.src else "the pipeline's input"
        return f"{source} -> {self.dst}.{self.dst_port}"


@dataclass(frozen=True, eq=False)
class Graph:
    """A validated DAG of stages.

    Parameters
    ----------
    nodes : mapping of node name to Stage
        In the order they were added.
    edges : tuple of Edge
        Without the edge from the pipeline's input where that is implied (see `build`).

    Raises
    ------
    PipelineError
        For unknown or doubly fed ports, cycles, ports without a source; both ends are named.
    """

    nodes: Mapping[str, Stage]
    edges: tuple[Edge, ...]
    linear: bool = field(default=False)

    @staticmethod
    def build(nodes: Mapping[str, Stage], edges: Iterable[Edge] | None) -> Graph:
        """Return the graph; `edges` None connects the nodes' main ports one after another."""
        if not nodes:
            raise PipelineError("a pipeline needs at least one stage")
        names = list(nodes)
        implied = chain_edges(nodes)
        all_edges = implied if edges is None else list(edges)
        _check_ports(nodes, all_edges)
        fed = {(e.dst, e.dst_port) for e in all_edges}
        open_ports = [(n, p) for n in names for p in nodes[n].inputs if (n, p) not in fed]
        has_input = any(e.src == INPUT for e in all_edges)
        if not has_input and len(open_ports) == 1:
            node, port = open_ports.pop()
            all_edges = [Edge(INPUT, INPUT_PORT, node, port), *all_edges]
            has_input = True
        if open_ports:
            ports = ", ".join(f"{n}.{p}" for n, p in open_ports)
            raise PipelineError(
                f"input ports without a source: {ports}; connect them, or leave exactly one for the pipeline's input"
            )
        if not has_input:
            raise PipelineError("no stage reads the pipeline's input")
        graph = Graph(
            dict(nodes),
            tuple(all_edges),
            set(all_edges) == {Edge(INPUT, INPUT_PORT, names[0], nodes[names[0]].inputs[0]), *implied},
        )
        _ = graph.order  # finds cycles
        return graph

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Nodes in topological order; among those that are ready, in the order they were added."""
        waiting = {n: {e.src for e in self.edges if e.dst == n and e.src != INPUT} for n in self.nodes}
        done: list[str] = []
        while waiting:
            ready = next((n for n, sources in waiting.items() if not sources - set(done)), None)
            if ready is None:
                loop = self._cycle(waiting)
                raise PipelineError(f"the pipeline has a cycle: {' -> '.join(loop)}; remove the edge {loop[-2]} -> {loop[-1]}")
            done.append(ready)
            del waiting[ready]
        return tuple(done)

    @staticmethod
    def _cycle(waiting: Mapping[str, set[str]]) -> list[str]:
        node = next(iter(waiting))
        path: list[str] = []
        while node not in path:
            path.append(node)
            node = next(s for s in waiting[node] if s in waiting)
        return [*path[path.index(node) :], node][::-1]

    @cached_property
    def sources(self) -> Mapping[NodePort, NodePort]:
        """Input port -> the output port (or the pipeline's input) that feeds it."""
        return {(e.dst, e.dst_port): (e.src, e.src_port) for e in self.edges}

    @cached_property
    def consumers(self) -> Mapping[NodePort, tuple[NodePort, ...]]:
        """Output port (or the pipeline's input) -> the input ports it feeds, in topological order."""
        rank = {n: i for i, n in enumerate(self.order)}
        found: dict[NodePort, list[NodePort]] = {}
        for e in sorted(self.edges, key=lambda e: rank[e.dst]):
            found.setdefault((e.src, e.src_port), []).append((e.dst, e.dst_port))
        return {k: tuple(v) for k, v in found.items()}

    @cached_property
    def sinks(self) -> tuple[NodePort, ...]:
        """Output ports nothing consumes: what the archive holds, the last node's first."""
        return tuple((n, p) for n in reversed(list(self.nodes)) for p in self.nodes[n].outputs if (n, p) not in self.consumers)

    @cached_property
    def chunk(self) -> int:
        """Elements of an archive chunk: the largest multiple of the spans' lcm up to 8192, else one lcm."""
        spans = self._spans
        unit = math.lcm(*spans)
        if unit > CHUNK_LIMIT:
            raise PipelineError(
                f"the stages' spans {sorted(set(spans))} have the least common multiple {unit}, "
                f"above {CHUNK_LIMIT} elements; choose spans that divide one another"
            )
        return max(CHUNK_TARGET // unit, 1) * unit

    @property
    def _spans(self) -> list[int]:
        specs = []
        for stage in self.nodes.values():
            with declaring(stage):
                specs.append(stage.fusion_spec())
        return [spec.span for spec in specs if spec.fusable] or [1]

    def check_chunk(self, chunk: int) -> int:
        """Return `chunk` if every span divides it; raise `PipelineError` otherwise."""
        if not 1 <= chunk <= CHUNK_LIMIT or any(chunk % span for span in self._spans):
            raise PipelineError(f"a chunk of {chunk} elements does not fit the stages' spans {sorted(set(self._spans))}")
        return chunk

    def types(self, dtype: str) -> dict[str, dict[str, PortType]]:
        """Return the type of every port of every node for an input of `dtype`.

        Raises
        ------
        PipelineError
            Where a stage cannot take what feeds it; the message names both ends.
        """
        values: dict[NodePort, PortType] = {(INPUT, INPUT_PORT): PortType(dtype)}
        found: dict[str, dict[str, PortType]] = {}
        for node in self.order:
            stage = self.nodes[node]
            inputs = {p: values[self.sources[node, p]] for p in stage.inputs}
            try:
                outputs = dict(stage.output_types(inputs))
            except PipelineError as exc:
                ends = "; ".join(f"{Edge(*self.sources[node, p], node, p)} carries {t}" for p, t in inputs.items())
                raise type(exc)(f"{exc} ({ends})") from exc
            if set(outputs) != set(stage.outputs):
                raise PipelineError(f"stage {node!r} types the ports {sorted(outputs)} but declares {sorted(stage.outputs)}")
            found[node] = {**inputs, **outputs}
            values.update({(node, p): t for p, t in outputs.items()})
        return found


@contextmanager
def declaring(stage: Stage) -> Iterator[None]:
    """Name `stage` in the error where what it declares inside the block contradicts itself."""
    try:
        yield
    except DeclarationError as exc:
        raise DeclarationError(f"stage {stage.name!r} declares: {exc}") from exc


def chain_edges(nodes: Mapping[str, Stage]) -> list[Edge]:
    """Return the edges that connect the main ports of `nodes` one after another."""
    names = list(nodes)
    return [Edge(a, nodes[a].outputs[0], b, nodes[b].inputs[0]) for a, b in itertools.pairwise(names)]


def _check_ports(nodes: Mapping[str, Stage], edges: Iterable[Edge]) -> None:
    fed: dict[NodePort, Edge] = {}
    for e in edges:
        if e.src != INPUT and e.src not in nodes:
            raise PipelineError(f"edge {e}: there is no node {e.src!r}; nodes: {', '.join(nodes)}")
        if e.dst not in nodes:
            raise PipelineError(f"edge {e}: there is no node {e.dst!r}; nodes: {', '.join(nodes)}")
        outputs = nodes[e.src].outputs if e.src != INPUT else (INPUT_PORT,)
        if e.src_port not in outputs:
            raise PipelineError(f"edge {e}: {e.src or 'the input'} has no output {e.src_port!r}; it has: {', '.join(outputs)}")
        if e.dst_port not in nodes[e.dst].inputs:
            raise PipelineError(f"edge {e}: {e.dst} has no input {e.dst_port!r}; it has: {', '.join(nodes[e.dst].inputs)}")
        if (e.dst, e.dst_port) in fed:
            raise PipelineError(f"{e.dst}.{e.dst_port} is fed twice: by {fed[e.dst, e.dst_port]} and by {e}")
        fed[e.dst, e.dst_port] = e

"""The pipeline as a DAG: nodes, ports, edges, types; built once, then read by planner and executor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from .declare import FusionAccess, FusionSpec
from .errors import DeclarationError, PipelineError
from .ports import STREAM_DTYPES, PortType
from .stage import Stage

#: the pipeline's input, as a source of edges
INPUT: Final = ""
INPUT_PORT: Final = "in"
#: largest archive chunk built from several spans, in elements; one lcm may exceed it
CHUNK_TARGET: Final = 8192
CHUNK_LIMIT: Final = 65_536

NodePort = tuple[str, str]


class Edge(NamedTuple):
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
        With the edge from the pipeline's input, which may be implied (see `build`).
    linear : bool
        Whether the edges connect the main ports of the nodes one after another, and nothing else.

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
        """Return the graph.

        `edges` None connects the nodes' main ports one after another, and optional inputs that fit to the side ports of
        their name (`side_edges`). Edges of which none ends at a main input come beside the chain of main ports.
        """
        if not nodes:
            raise PipelineError("a pipeline needs at least one stage")
        names = list(nodes)
        implied = chain_edges(nodes)
        if edges is None:
            all_edges = [*implied, *side_edges(nodes)]
        else:
            all_edges = list(edges)
            if not any(e.dst in nodes and e.dst_port == nodes[e.dst].inputs[0] for e in all_edges):
                all_edges = [*implied, *all_edges]
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
        _ = graph.tails  # finds selectors without a coder
        _ = graph.behind  # finds layouts that do not go together
        return graph

    def suited(self, dtype: str) -> Graph:
        """Return this graph with the stages that stand in for those at its input where the data are of `dtype`."""
        first = {e.dst for e in self.edges if e.src == INPUT}
        nodes = {n: stage.stand_in(dtype) if n in first else stage for n, stage in self.nodes.items()}
        if nodes == self.nodes:
            return self
        # a node that bears its stage's name bears the name of the one that stands in
        names = {n: s.name if n == self.nodes[n].name and s.name not in nodes else n for n, s in nodes.items()} | {INPUT: INPUT}
        beside = self.beside_chain  # a chain stays one, whatever the ports of what stands in are named
        kept = self.edges if beside is None else beside
        edges = [Edge(names[e.src], e.src_port, names[e.dst], e.dst_port) for e in kept]
        return Graph.build({names[n]: stage for n, stage in nodes.items()}, edges)

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

    def inputs(self, node: str) -> tuple[str, ...]:
        """Return the inputs of a node that are connected: all but optional ones that are not."""
        stage = self.nodes[node]
        return (*stage.inputs, *(p for p in stage.optional_inputs if (node, p) in self.sources))

    @cached_property
    def side(self) -> tuple[Edge, ...]:
        """The edges into optional inputs."""
        return tuple(e for e in self.edges if e.dst_port in self.nodes[e.dst].optional_inputs)

    @property
    def beside_chain(self) -> tuple[Edge, ...] | None:
        """The edges into optional inputs, where all others are those of a linear chain; else None."""
        names = list(self.nodes)
        plain = {Edge(INPUT, INPUT_PORT, names[0], self.nodes[names[0]].inputs[0]), *chain_edges(self.nodes)}
        return self.side if set(self.edges) == plain | set(self.side) else None

    def inside(self, nodes: Iterable[str]) -> set[NodePort]:
        """Return the output ports of `nodes` that some of them read and no other does."""
        members = set(nodes)
        return {port for port, readers in self.consumers.items() if port[0] in members and all(n in members for n, _ in readers)}

    @cached_property
    def tails(self) -> Mapping[str, tuple[str, ...]]:
        """Each TILE_SELECTOR -> the nodes that follow it on the main path, up to the coder by whose cost it chooses.

        Raises
        ------
        PipelineError
            Where what follows is anything but ELEMENTWISE stages and a coder that tells its cost.
        """
        found = {}
        for node, stage in self.nodes.items():
            spec = _forward_spec(stage)
            if spec.access is FusionAccess.TILE_SELECTOR:
                found[node] = _tail(self, node, spec.span)
        return found

    @cached_property
    def layout(self) -> str | None:
        """The node of the LAYOUT stage, if there is one; raises `PipelineError` where there are several."""
        found = [n for n in self.order if _forward_spec(self.nodes[n]).access is FusionAccess.LAYOUT]
        if len(found) > 1:
            raise PipelineError(f"{found[0]} and {found[1]} are both a LAYOUT; a pipeline has one order of its elements at most")
        return found[0] if found else None

    @cached_property
    def behind(self) -> frozenset[str]:
        """The nodes behind the LAYOUT stage, whose streams are of its elements.

        Raises
        ------
        PipelineError
            Where a node reads from both sides of it, or there are two, or it is not of one input and one output.
        """
        found: set[str] = set()
        if self.layout is None:
            return frozenset()
        stage = self.nodes[self.layout]
        if len(stage.inputs) + len(stage.optional_inputs) != 1 or len(stage.outputs) != 1:
            raise PipelineError(f"{self.layout} is a LAYOUT, which has one input and one output")
        for node in self.order:
            sources = {self.sources[node, p][0] for p in self.inputs(node)}
            laid = {n for n in sources if n == self.layout or n in found}
            if laid and laid != sources:
                raise PipelineError(
                    f"{node} reads elements as {self.layout} lays them out, and others as they stood before: "
                    f"it can have one of the two only"
                )
            if laid:
                found.add(node)
        return frozenset(found)

    @cached_property
    def sinks(self) -> tuple[NodePort, ...]:
        """Output ports nothing consumes: what the archive holds, the last node's first."""
        return tuple((n, p) for n in reversed(list(self.nodes)) for p in self.nodes[n].outputs if (n, p) not in self.consumers)

    @cached_property
    def chunk(self) -> int:
        """Elements of an archive chunk: the largest multiple of the spans' lcm up to 8192, else one lcm."""
        return self._chunk(self._spans({}))

    def chunk_for(self, dtype: str) -> int:
        """Return the elements of an archive chunk for an input of `dtype`: `chunk`, or what stages with spans in bytes ask for.

        Raises
        ------
        PipelineError
            Where stages ask for different chunks; the message names two of them.
        """
        found = self._chunks.get(dtype)
        if found is None:
            found = self._chunks[dtype] = self._chunk(self._spans(self.types(dtype)))
        return found

    @cached_property
    def _chunks(self) -> dict[str, int]:
        return {}

    def _chunk(self, stated: Mapping[str, tuple[FusionSpec, int]]) -> int:
        spans = [span for _, span in stated.values()] or [1]
        fixed = [(node, spec, span) for node, (spec, span) in stated.items() if spec.unit == "bytes"]
        for node, spec, span in fixed:
            first, other, elements = fixed[0]
            if (spec.span, span) != (other.span, elements):
                raise PipelineError(
                    f"{first} works on chunks of {other.span} bytes ({elements} elements), {node} of {spec.span} ({span}); "
                    f"all such stages of a pipeline work on chunks of one size"
                )
        unit = math.lcm(*spans)
        if fixed:
            for node, (spec, span) in stated.items():
                if fixed[0][2] % span:
                    raise PipelineError(
                        f"{fixed[0][0]} works on chunks of {fixed[0][1].span} bytes, which are {fixed[0][2]} elements: "
                        f"the span of {node}, {spec.span} {spec.unit}, does not divide them"
                    )
            return fixed[0][2]
        if unit > CHUNK_LIMIT:
            raise PipelineError(
                f"the stages' spans {sorted(set(spans))} have the least common multiple {unit}, "
                f"above {CHUNK_LIMIT} elements; choose spans that divide one another"
            )
        return max(CHUNK_TARGET // unit, 1) * unit

    def _spans(self, types: Mapping[str, Mapping[str, PortType]]) -> dict[str, tuple[FusionSpec, int]]:
        """Return role and span in elements of every node that has a role; `types` may be empty where no span is in bytes."""
        found = {}
        for node, stage in self.nodes.items():
            spec = _forward_spec(stage)
            if spec.unit == "bytes" and node not in types:
                raise PipelineError(f"{node} works on chunks of {spec.span} bytes: their elements depend on the input's type")
            if spec.fusable:
                with declaring(stage):
                    found[node] = spec, spec.elements(types[node][stage.inputs[0]].numpy.itemsize if types else 1)
        return found

    def check_chunk(self, chunk: int, types: Mapping[str, Mapping[str, PortType]]) -> int:
        """Return `chunk` if every span divides it, and spans in bytes fill it; raise `PipelineError` otherwise."""
        stated = self._spans(types).values()
        unfit = any(chunk % span or (spec.unit == "bytes" and chunk != span) for spec, span in stated)
        if not 1 <= chunk <= CHUNK_LIMIT or unfit:
            spans = sorted({span for _, span in stated})
            raise PipelineError(f"a chunk of {chunk} elements does not fit the stages' spans {spans}")
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
            inputs = {p: values[self.sources[node, p]] for p in self.inputs(node)}
            try:
                outputs = dict(stage.output_types(inputs))
            except PipelineError as exc:
                ends = "; ".join(f"{Edge(*self.sources[node, p], node, p)} carries {t}" for p, t in inputs.items())
                raise type(exc)(f"{exc} ({ends})") from exc
            if set(outputs) != set(stage.outputs):
                raise PipelineError(f"stage {node!r} types the ports {sorted(outputs)} but declares {sorted(stage.outputs)}")
            if stage.replaced_code(inputs[stage.inputs[0]].dtype) is not None and not self._kept_aside(node):
                raise PipelineError(
                    f"stage {node!r} replaces a code and does not give it back; a stage before it must keep what it stands "
                    f"for aside, on a port of its own"
                )
            found[node] = {**inputs, **outputs}
            values.update({(node, p): t for p, t in outputs.items()})
        return found

    def _kept_aside(self, node: str) -> bool:
        """Whether a stage before `node`, along main inputs, has a port for values that its codes do not tell."""
        before = self.sources[node, self.nodes[node].inputs[0]][0]
        while before != INPUT:
            if self.nodes[before].fused_aux_outputs():
                return True
            before = self.sources[before, self.nodes[before].inputs[0]][0]
        return False


@contextmanager
def declaring(stage: Stage) -> Iterator[None]:
    """Name `stage` in the error where what it declares inside the block contradicts itself."""
    try:
        yield
    except DeclarationError as exc:
        raise DeclarationError(f"stage {stage.name!r} declares: {exc}") from exc


def _forward_spec(stage: Stage) -> FusionSpec:
    with declaring(stage):
        return stage.fusion_spec()


def _tail(graph: Graph, selector: str, span: int) -> tuple[str, ...]:
    """Return the nodes behind `selector` up to its coder; see `Graph.tails`."""
    needs = (
        f"{selector} chooses for each tile by the cost of the coder behind it: it needs a SEGMENT_CODEC that tells its cost "
        f"(Stage.cost) on its main path, with nothing but ELEMENTWISE stages in between"
    )
    nodes: list[str] = []
    node = selector
    while True:
        port = (node, graph.nodes[node].outputs[0])
        readers = graph.consumers.get(port, ())
        if len(readers) != 1:
            what = f"fans out to {', '.join(n for n, _ in readers)}" if readers else "is read by nothing"
            raise PipelineError(f"{needs}; {node}.{port[1]} {what}")
        node, entry = readers[0]
        stage = graph.nodes[node]
        spec = _forward_spec(stage)
        nodes.append(node)
        if entry != stage.inputs[0] or len(stage.inputs) > 1:
            raise PipelineError(f"{needs}; {node}.{entry} is not the one main input of {node}")
        if spec.access is FusionAccess.SEGMENT_CODEC:
            if type(stage).cost is Stage.cost:
                raise PipelineError(f"{needs}; {node} tells none")
            if span % spec.span:
                raise PipelineError(
                    f"{selector}: its tile of {span} elements is no whole number of segments of {spec.span} elements, "
                    f"by which {node} tells its cost; choose another tile or segment"
                )
            return tuple(nodes)
        if spec.access is not FusionAccess.ELEMENTWISE:
            raise PipelineError(f"{needs}; {node} is {spec.access.name}, so that a segment's cost would depend on others")


def chain_edges(nodes: Mapping[str, Stage]) -> list[Edge]:
    """Return the edges that connect the main ports of `nodes` one after another."""
    names = list(nodes)
    return [Edge(a, nodes[a].outputs[0], b, nodes[b].inputs[0]) for a, b in itertools.pairwise(names)]


def side_edges(nodes: Mapping[str, Stage]) -> list[Edge]:
    """Return the edges from side ports to the optional inputs of a linear chain that take them.

    An optional input is fed by the nearest node before it that has a side port of its name, where it accepts what the port
    carries for every element type that the stages from there on can work on.
    """
    names = list(nodes)
    found: list[Edge] = []
    for at, node in enumerate(names):
        for port in nodes[node].optional_inputs:
            source = next((i for i in range(at - 1, -1, -1) if port in nodes[names[i]].outputs[1:]), None)
            if source is None or any((e.src, e.src_port) == (names[source], port) for e in found):
                continue
            if _accepts([nodes[n] for n in names[source : at + 1]], port):
                found.append(Edge(names[source], port, node, port))
    return found


def _accepts(chain: list[Stage], port: str) -> bool:
    """Whether the last of `chain` takes the side port of the first, for every type that the chain can work on without."""
    first, *between, last = chain
    some = False
    for dtype in sorted(STREAM_DTYPES):
        try:
            made = first.output_types({first.inputs[0]: PortType(dtype)})
            given = made[first.outputs[0]]
            for stage in between:
                given = stage.output_types({stage.inputs[0]: given})[stage.outputs[0]]
            last.output_types({last.inputs[0]: given})
        except Exception:  # of code that may never have been asked about this type
            continue
        try:
            last.output_types({last.inputs[0]: given, port: made[port]})
        except PipelineError:
            return False
        some = True
    return some


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
        inputs = (*nodes[e.dst].inputs, *nodes[e.dst].optional_inputs)
        if e.dst_port not in inputs:
            raise PipelineError(f"edge {e}: {e.dst} has no input {e.dst_port!r}; it has: {', '.join(inputs)}")
        if (e.dst, e.dst_port) in fed:
            raise PipelineError(f"{e.dst}.{e.dst_port} is fed twice: by {fed[e.dst, e.dst_port]} and by {e}")
        fed[e.dst, e.dst_port] = e

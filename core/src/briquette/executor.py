"""Runs a plan: primes every stage, steps through the plan, and hands the values of the sinks over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import ArchiveError, DeclarationError, UsageError
from .graph import INPUT, INPUT_PORT, Graph, NodePort
from .harness import Direction, GroupProgram, GroupRun, Harness, Overflow, Sink
from .plan import DirectionPlan, Plan, Step
from .planner import chain_members
from .ports import Chunked, PortType, PortValue
from .record import Bound, RunRecord
from .stage import PrimeContext, Scope
from .target import Target

#: elements a walk of NumPy stages takes at a time: large enough to hide call overhead, small enough for the cache
PIECE: Final = 1 << 18

OpenSink = Callable[[RunRecord, int, int], Sink]
Checker = Callable[[int, int], None]


@dataclass(eq=False)
class Executable:
    """A plan with its target, harnesses and compiled programs; shared by threads."""

    plan: Plan
    target: Target | None
    harnesses: Mapping[str, Harness]
    _programs: dict[tuple[Direction, tuple[str, ...]], GroupProgram] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def graph(self) -> Graph:
        return self.plan.graph

    def program(self, step: Step, direction: Direction) -> GroupProgram:
        """Return the compiled program of a step that runs in a harness."""
        key = (direction, step.nodes)
        found = self._programs.get(key)
        if found is None:
            assert self.target is not None
            with self._lock:
                found = self._programs.get(key)
                if found is None:
                    members = chain_members(self.graph, self.plan.types, step.nodes, direction)
                    found = self.harnesses[step.harness].program(members, direction, self.target, self.plan.chunk)
                    self._programs[key] = found
        return found

    def compile(self) -> None:
        """Compile every program of the plan, both directions."""
        for plan in (self.plan.forward, self.plan.inverse):
            for step in plan.steps:
                if step.kind != "numpy":
                    self.program(step, plan.direction)

    def check_bound(self, bound: Bound | None) -> None:
        """Raise `UsageError` where a stage needs an error bound and there is none."""
        names = ", ".join(n for n, s in self.graph.nodes.items() if s.needs_bound)
        if names and bound is None:
            raise UsageError(f"the pipeline needs an error bound (for {names}): pass eb= and mode=")

    # -- compression ---------------------------------------------------------------------------------------

    def forward(
        self, source: Any, bound: Bound | None, threads: int, open_sink: OpenSink | None = None
    ) -> tuple[RunRecord, dict[NodePort, PortValue]]:
        """Compress the 1-D array `source` (of NumPy or of the target's memory); return the record and the value of every sink.

        Parameters
        ----------
        open_sink : callable, optional
            Called as ``open_sink(record, chunks, max_words)`` once the record is final; returns the memory for
            the first sink's payload, so that the last step writes where the archive wants it. May raise `Overflow`.
        """
        plan = self.plan.forward
        self.check_bound(bound)
        record = RunRecord()
        values: dict[NodePort, Any] = {(INPUT, INPUT_PORT): source}
        for i, step in enumerate(plan.steps):
            opener = None
            if open_sink is not None and i == len(plan.steps) - 1:
                opener = self._opener(step, record, source.size, open_sink)
            if step.kind == "numpy":
                self._prime(step, values, record, bound, source.size)
                values.update(self._numpy_forward(step, values, record, source.size, opener))
            else:
                values.update(self._group_forward(step, values, record, bound, source.size, threads, opener))
            self._drop(plan, i, values)
        return record, {p: values[p] for p in self.graph.sinks}

    def _prime(self, step: Step, values: dict[NodePort, Any], record: RunRecord, bound: Bound | None, count: int) -> None:
        for node in step.nodes:
            stage = self.graph.nodes[node]
            port = self.graph.sources[node, stage.inputs[0]]
            source = self._on_host(port, values) if port in values else None
            array = source if isinstance(source, np.ndarray) else None
            state = dict(stage.prime_fused_forward_state(PrimeContext(array, self.plan.types[node], bound, count)))
            if state:
                record.state[node] = state

    def _opener(self, step: Step, record: RunRecord, count: int, open_sink: OpenSink) -> Callable[[], Sink] | None:
        """Return what opens the archive's memory for the tail of the last step, where it goes to the first segment."""
        node = step.nodes[-1]
        stage = self.graph.nodes[node]
        port = stage.outputs[0]
        if self.graph.sinks[0] != (node, port) or self.plan.types[node][port].layout != "chunked":
            return None
        chunks = -(-count // self.plan.chunk)
        words = chunks * stage.max_chunk_words(port, self.plan.types[node], self.plan.chunk)
        return lambda: open_sink(record, chunks, words)

    def _on_host(self, port: NodePort, values: dict[NodePort, Any]) -> PortValue:
        """Return a port's value in host memory; one that lies in the target's is brought over, and stays."""
        values[port] = self.to_host(values[port])
        found: PortValue = values[port]
        return found

    def to_host(self, value: Any) -> PortValue:
        """Return a port's value as NumPy arrays, copied where it lies in the target's memory."""
        memory = self.target.memory if self.target is not None else None
        if memory is None or isinstance(value, np.ndarray):
            host: PortValue = value
            return host
        if isinstance(value, Chunked):
            arrays = (a if isinstance(a, np.ndarray) else memory.download(a) for a in (value.sizes, value.words))
            return Chunked(*arrays)
        return memory.download(value)

    def _group_forward(
        self,
        step: Step,
        values: dict[NodePort, Any],
        record: RunRecord,
        bound: Bound | None,
        count: int,
        threads: int,
        open_sink: Callable[[], Sink] | None,
    ) -> dict[NodePort, Any]:
        assert self.target is not None
        head, tail = step.nodes[0], step.nodes[-1]
        stage = self.graph.nodes[tail]
        kind = self.plan.types[tail][stage.outputs[0]]
        program = self.program(step, "forward")
        memory = self.target.memory
        port = self.graph.sources[head, self.graph.nodes[head].inputs[0]]
        if memory is not None and isinstance(values[port], np.ndarray):
            values[port] = memory.upload(values[port])
        if not program.primes:
            self._prime(step, values, record, bound, count)
        out = None
        if kind.layout == "stream":
            out = memory.empty(count, kind.dtype, values[port]) if memory is not None else np.empty(count, kind.numpy)
        elif open_sink is None and memory is None:
            chunks = -(-count // self.plan.chunk)
            words = chunks * stage.max_chunk_words(stage.outputs[0], self.plan.types[tail], self.plan.chunk)
            scratch = _Scratch(np.empty(chunks, np.uint32), np.empty(words, np.uint32))
            open_sink = lambda: scratch  # noqa: E731
        run = GroupRun(record, count, self.plan.chunk, threads, bound, open_sink, out)
        return dict(program.forward(values[port], run))

    def _numpy_forward(
        self, step: Step, values: dict[NodePort, Any], record: RunRecord, count: int, open_sink: Callable[[], Sink] | None
    ) -> dict[NodePort, PortValue]:
        for node in step.nodes:
            for name in self.graph.nodes[node].inputs:
                if self.graph.sources[node, name] in values:
                    self._on_host(self.graph.sources[node, name], values)
        parts: dict[NodePort, list[PortValue]] = {}
        for begin, end in self._pieces(step, count):
            local: dict[NodePort, PortValue] = {}
            for node in step.nodes:
                stage = self.graph.nodes[node]
                inputs = {p: self._input(node, p, values, local, begin, end, step) for p in stage.inputs}
                outputs = stage.forward(inputs, self._scope(node, record, end - begin))
                for port in stage.outputs:
                    local[node, port] = _check_value(
                        outputs[port], self.plan.types[node][port], node, port, end - begin, self.plan.chunk
                    )
            inner = {self.graph.sources[n, self.graph.nodes[n].inputs[0]] for n in step.nodes[1:]}
            for key, value in local.items():
                if key not in inner:
                    parts.setdefault(key, []).append(value)
        found = {key: _join(pieces) for key, pieces in parts.items()}
        if open_sink is not None:
            sink = open_sink()
            key = (step.nodes[-1], self.graph.nodes[step.nodes[-1]].outputs[0])
            value = found[key]
            assert isinstance(value, Chunked)
            if value.words.size > sink.words.size:
                raise Overflow
            sink.sizes[:] = value.sizes
            sink.words[: value.words.size] = value.words
            found[key] = Chunked(sink.sizes, sink.words[: value.words.size])
        return found

    def _input(
        self,
        node: str,
        port: str,
        values: Mapping[NodePort, PortValue],
        local: Mapping[NodePort, PortValue],
        begin: int,
        end: int,
        step: Step,
    ) -> PortValue:
        key = self.graph.sources[node, port]
        if key in local:
            return local[key]
        value = values[key]
        if isinstance(value, np.ndarray) and len(step.nodes) > 1:
            return value[begin:end]
        return value

    # -- decompression -------------------------------------------------------------------------------------

    def inverse(
        self,
        sinks: Mapping[NodePort, Any],
        record: RunRecord,
        count: int,
        threads: int,
        out: Any,
        checkers: Mapping[NodePort, Checker] | None = None,
    ) -> Any:
        """Decompress the sinks' values into the 1-D array `out` and return it.

        Parameters
        ----------
        checkers : mapping, optional
            For each sink, what verifies the checksums of a half-open range of its chunks; called before those are read.
        """
        plan = self.plan.inverse
        values: dict[NodePort, Any] = dict(sinks)
        checks = checkers or {}
        for i, step in enumerate(plan.steps):
            head = step.nodes[0]
            target_port = self.graph.sources[head, self.graph.nodes[head].inputs[0]]
            last = target_port == (INPUT, INPUT_PORT) and len(self.graph.consumers[target_port]) == 1
            mine = [check for (node, port), check in checks.items() if node in step.nodes]
            if step.kind == "numpy":
                for check in mine:
                    check(0, -(-count // self.plan.chunk))
                for port in [(n, p) for n in step.nodes for p in self.graph.nodes[n].outputs]:
                    if port in values:
                        self._on_host(port, values)
                found = self._numpy_inverse(step, values, record, count, out if last and isinstance(out, np.ndarray) else None)
            else:
                kind = self.plan.types[head][self.graph.nodes[head].inputs[0]]
                dest = self._destination(kind, count, out if last else None)
                run = GroupRun(record, count, self.plan.chunk, threads, out=dest, checker=_all_of(mine))
                ports = {(n, p): values[n, p] for n in step.nodes for p in self.graph.nodes[n].outputs if (n, p) in values}
                found = {target_port: self.program(step, "inverse").inverse(ports, run)}
            for key, value in found.items():
                values.setdefault(key, value)
            self._drop(plan, i, values)
        result = values.get((INPUT, INPUT_PORT))
        if result is None:
            raise DeclarationError("no stage that reads the pipeline's input gave it back: its inverse must return every input")
        if result is not out:
            if result.shape != out.shape or result.dtype != out.dtype:
                raise ArchiveError(
                    f"the archive decodes to {result.size} elements of {result.dtype}, its header says {out.size} of {out.dtype}"
                )
            if isinstance(out, np.ndarray) and isinstance(result, np.ndarray):
                out[:] = result
            else:
                self._between(result, out)
        return out

    def _destination(self, kind: PortType, count: int, out: Any) -> Any:
        """Return where a group's inverse writes: `out` if it lies in the memory the kernels write, else an array that does."""
        memory = self.target.memory if self.target is not None else None
        if memory is None:
            return out if out is not None else np.empty(count, kind.numpy)
        return out if out is not None and memory.owns(out) else memory.empty(count, kind.dtype)

    def _between(self, value: Any, out: Any) -> None:
        """Copy a stream between host memory and the target's."""
        assert self.target is not None
        assert self.target.memory is not None
        if isinstance(out, np.ndarray):
            self.target.memory.download(value, out)
        else:
            self.target.memory.upload(value, out)

    def _numpy_inverse(
        self, step: Step, values: Mapping[NodePort, PortValue], record: RunRecord, count: int, out: NDArray[Any] | None
    ) -> dict[NodePort, PortValue]:
        parts: dict[NodePort, list[PortValue]] = {}
        cut = _Cutter(values, self.plan.chunk, len(step.nodes) > 1)
        for begin, end in self._pieces(step, count):
            local: dict[NodePort, PortValue] = {}
            for node in reversed(step.nodes):
                stage = self.graph.nodes[node]
                outputs: dict[str, PortValue] = {}
                for port in stage.outputs:
                    outputs[port] = local[node, port] if (node, port) in local else cut((node, port), begin, end)
                inputs = stage.inverse(outputs, self._scope(node, record, end - begin))
                for port, value in inputs.items():
                    kind = self.plan.types[node][port]
                    local[self.graph.sources[node, port]] = _check_value(value, kind, node, port, end - begin, self.plan.chunk)
            inner = {self.graph.sources[n, self.graph.nodes[n].inputs[0]] for n in step.nodes[1:]}
            for key, value in local.items():
                if key == (INPUT, INPUT_PORT) and out is not None and isinstance(value, np.ndarray):
                    out[begin:end] = value
                elif key not in inner:
                    parts.setdefault(key, []).append(value)
        found = {key: _join(pieces) for key, pieces in parts.items()}
        if out is not None:
            found[INPUT, INPUT_PORT] = out
        return found

    # -- shared --------------------------------------------------------------------------------------------

    def _pieces(self, step: Step, count: int) -> Iterator[tuple[int, int]]:
        if len(step.nodes) == 1:
            yield 0, count
            return
        size = max(PIECE // self.plan.chunk, 1) * self.plan.chunk
        for begin in range(0, count, size):
            yield begin, min(begin + size, count)

    def _scope(self, node: str, record: RunRecord, count: int) -> Scope:
        return Scope(record.of(node), self.plan.types[node], count, self.plan.chunk, partial(record.tally, node))

    def _drop(self, plan: DirectionPlan, step: int, values: dict[NodePort, PortValue]) -> None:
        """Free the buffers that no later step reads."""
        for buffer in plan.buffers:
            if buffer.dies <= step and step < len(plan.steps) - 1 and buffer.port[0] != INPUT:
                values.pop(buffer.port, None)


@dataclass(frozen=True)
class _Scratch:
    sizes: NDArray[np.uint32]
    words: NDArray[np.uint32]


@dataclass
class _Cutter:
    """Cuts port values to a range of elements that begins at a chunk."""

    values: Mapping[NodePort, PortValue]
    chunk: int
    pieces: bool
    _offsets: dict[NodePort, NDArray[np.int64]] = field(default_factory=dict)

    def __call__(self, port: NodePort, begin: int, end: int) -> PortValue:
        value = self.values.get(port)
        if value is None:
            raise DeclarationError(f"the inverse needs {port[0]}.{port[1]}, which no stage gave back")
        if not self.pieces:
            return value
        if isinstance(value, np.ndarray):
            return value[begin:end]
        if port not in self._offsets:
            self._offsets[port] = np.concatenate([[0], np.cumsum(value.sizes, dtype=np.int64)])
        first, last = begin // self.chunk, -(-end // self.chunk)
        offsets = self._offsets[port]
        return Chunked(value.sizes[first:last], value.words[offsets[first] : offsets[last]])


def _all_of(checks: Iterable[Checker]) -> Checker | None:
    checks = tuple(checks)
    if not checks:
        return None

    def check(begin: int, end: int) -> None:
        for one in checks:
            one(begin, end)

    return check


def _join(parts: list[PortValue]) -> PortValue:
    if len(parts) == 1:
        return parts[0]
    chunked = [p for p in parts if isinstance(p, Chunked)]
    if chunked:
        return Chunked.concatenate(chunked)
    return np.concatenate([p for p in parts if isinstance(p, np.ndarray)])


def _check_value(value: PortValue, kind: PortType, node: str, port: str, count: int, chunk: int) -> PortValue:
    """Hold a stage's NumPy form to what it declared."""
    if isinstance(value, Chunked):
        if kind.layout != "chunked" or value.sizes.size != -(-count // chunk):
            raise DeclarationError(
                f"{node}.{port} is {kind}: got {value.sizes.size} chunk sizes for {count} elements in chunks of {chunk}"
            )
    elif kind.layout != "stream" or value.dtype != kind.numpy or value.shape != (count,):
        raise DeclarationError(f"{node}.{port} should be {kind} of shape ({count},), got {value.dtype} of shape {value.shape}")
    return value

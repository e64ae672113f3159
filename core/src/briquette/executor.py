"""Runs a plan: primes every stage, steps through the plan, and hands the values of the sinks over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import tuning
from ._forklock import ForkLock
from .arena import ArenaLayout, Arenas, Streams, layout
from .errors import ArchiveError, DeclarationError, UsageError
from .graph import INPUT, INPUT_PORT, Graph, NodePort
from .harness import Direction, GroupProgram, GroupRun, Harness, Member, Overflow, Sink
from .layouts import Lengths, Stretch
from .pieces import Cutter, Gathered, all_of, check_given_back, check_value, given, walk
from .plan import DirectionPlan, Plan, Step
from .planner import chain_members
from .ports import Chunked, PortValue, Scratch
from .record import Bound, RunRecord
from .repeats import Repeats
from .stage import PrimeContext, Scope
from .tails import tail_of
from .target import DeviceMemory, Target

OpenSink = Callable[[RunRecord, int, int], Sink]
Checker = Callable[[int, int], None]


@dataclass(eq=False)
class Executable:
    """A plan with its target, harnesses and compiled programs; shared by threads.

    With ``allocation="preallocate"`` the streams between steps lie in an arena that runs use again, see `arena`.
    """

    plan: Plan
    target: Target | None
    harnesses: Mapping[str, Harness]
    allocation: str = "minimal"
    #: whether measuring for it has been thought of, see `tuning.once`
    tuned: bool = False
    _arenas: Arenas = field(default_factory=Arenas)
    _repeats: Repeats = field(default_factory=Repeats)
    _programs: dict[tuple[Direction, tuple[str, ...]], GroupProgram] = field(default_factory=dict)
    _lock: ForkLock = field(default_factory=ForkLock)

    @property
    def graph(self) -> Graph:
        return self.plan.graph

    def program(self, step: Step, direction: Direction) -> GroupProgram:
        """Return the compiled program of a step that runs in a harness."""
        key = (direction, step.nodes)
        found = self._programs.get(key)
        if found is None:
            assert self.target is not None
            with self._lock.current:
                found = self._programs.get(key)
                if found is None:
                    found = self._programs[key] = tuning.composed(self, step, direction, self.target)
        return found

    def members(self, step: Step, direction: Direction) -> Sequence[Member]:
        """Return the chain of a step that runs in a harness."""
        return chain_members(self.graph, self.plan.types, step.nodes, direction)

    def apart(self) -> Executable:
        """Return another executable of the same plan, which shares the programs compiled so far."""
        with self._lock.current:
            return Executable(self.plan, self.target, self.harnesses, self.allocation, _programs=dict(self._programs))

    def install(self, step: Step, direction: Direction, program: GroupProgram) -> None:
        """Have a step run `program`, another one of the same harness and chain, from the next run on."""
        with self._lock.current:
            self._programs[direction, step.nodes] = program
        self._repeats.clear()

    def compile(self) -> None:
        """Compile every program of the plan, both directions."""
        for plan in (self.plan.forward, self.plan.inverse):
            for step in plan.steps:
                if step.kind != "numpy":
                    self.program(step, plan.direction)

    @cached_property
    def lengths(self) -> Lengths:
        """How long the streams of runs are."""
        return Lengths(self.graph, self.plan.chunk)

    # -- memory --------------------------------------------------------------------------------------------

    @property
    def memory(self) -> DeviceMemory | None:
        """The target's own memory; None where steps work on NumPy arrays."""
        return self.target.memory if self.target is not None else None

    def layout(self, direction: Direction, count: int | Stretch) -> ArenaLayout:
        """Return where the arena of a run of `count` elements (1-D, where it is a number) holds which stream.

        It holds what kernels, and walks in pieces, write for later steps: not the caller's input and output, nor what the
        archive is made of, nor what a NumPy stage that sees the whole stream returns, which is an array of its own.
        """
        plan, of = self.plan.direction(direction), self.lengths.of(count)
        theirs = {(INPUT, INPUT_PORT), *self.graph.sinks}
        buffers = []
        for b in plan.buffers:
            step = plan.steps[b.born]
            written = step.kind != "numpy" or (self.memory is None and len(step.nodes) > 1)
            if written and b.type.layout == "stream" and (b.again or b.port not in theirs):
                buffers.append(b)
        return layout(buffers, [self.lengths.elements(b.port, of) * b.type.itemsize for b in buffers])

    def preallocate(self, count: int | Stretch, like: Any = None) -> int:
        """Make an arena for runs of up to `count` elements in both directions, where `like` lies; return its bytes."""
        need = max(self.layout("forward", count).total, self.layout("inverse", count).total)
        if self.allocation == "preallocate" and need:
            self._arenas.give(self._arenas.take(need, self.memory, like), self.memory, like)
        return need

    def release(self) -> None:
        """Free the arenas that no run has at the moment."""
        self._arenas.clear()

    @contextmanager
    def _streams(self, direction: Direction, count: Stretch, caller: Any) -> Iterator[Streams]:
        """Give a run its streams in an arena; `caller` is the caller's array, where the arena should lie too."""
        memory, places = self.memory, self.layout(direction, count)
        if not places.total:
            yield Streams(memory)
            return
        like = caller if memory is not None and memory.owns(caller) else None
        arena = self._arenas.take(places.total, memory, like)
        try:
            yield Streams(memory, arena, places.offsets, like)
        except BaseException:
            if memory is not None:  # kernels may still write to the arena, which is freed: wait for them
                memory.download(memory.part(arena, 0, 0, "uint8", like))
            raise
        self._arenas.give(arena, memory, like)  # whatever a step starts has ended when it returns

    def check_bound(self, bound: Bound | None) -> None:
        """Raise `UsageError` where a stage needs an error bound and there is none."""
        if bound is not None:
            return
        names = ", ".join(n for n, s in self.graph.nodes.items() if s.needs_bound)
        if names:
            raise UsageError(f"the pipeline needs an error bound (for {names}): pass eb= and mode=")

    # -- compression ---------------------------------------------------------------------------------------

    def forward(
        self,
        source: Any,
        bound: Bound | None,
        threads: int,
        open_sink: OpenSink | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> tuple[RunRecord, Mapping[NodePort, PortValue]]:
        """Compress the 1-D array `source` (of NumPy or of the target's memory); return the record and the value of every sink.

        Parameters
        ----------
        shape : tuple of int, optional
            That of the array whose elements these are; default: 1-D.
        open_sink : callable, optional
            Called as ``open_sink(record, chunks, max_words)`` once the record is final; returns the memory for
            the first sink's payload, so that the last step writes where the archive wants it. May raise `Overflow`.
        """
        self.check_bound(bound)
        shape = (source.size,) if shape is None else shape
        arena = self.allocation == "preallocate"
        again = None if arena or open_sink or self.memory is None else self._repeats.forward(self, source, bound, shape)
        if again is not None:
            return again
        of = self.lengths.stretch(shape)
        if not arena:
            return self._forward(source, of, bound, threads, open_sink, Streams(self.memory))
        with self._streams("forward", of, source) as streams:
            return self._forward(source, of, bound, threads, open_sink, streams)

    def _forward(
        self, source: Any, of: Stretch, bound: Bound | None, threads: int, open_sink: OpenSink | None, streams: Streams
    ) -> tuple[RunRecord, dict[NodePort, PortValue]]:
        plan = self.plan.forward
        record = RunRecord()
        values: dict[NodePort, Any] = {(INPUT, INPUT_PORT): source}
        for i, step in enumerate(plan.steps):
            opener = None
            if open_sink is not None and i == len(plan.steps) - 1:
                opener = self._opener(step, record, of, open_sink)
            if step.kind == "numpy":
                self._prime(step, values, record, bound, of)
                values.update(self._numpy_forward(i, values, record, of, opener, streams))
            else:
                values.update(self._group_forward(i, values, record, bound, of, threads, opener, streams))
            streams.watch(values.values())
            self._drop(plan, i, values)
        record.report("", peak_stream_bytes=streams.peak)
        return record, {p: values[p] for p in self.graph.sinks}

    def _prime(self, step: Step, values: dict[NodePort, Any], record: RunRecord, bound: Bound | None, of: Stretch) -> None:
        behind = (n for node in step.nodes for n in self.graph.tails.get(node, ()))  # a selector asks what follows for its cost
        for node in (*step.nodes, *behind):
            if node in record.primed:
                continue
            record.primed.add(node)
            stage = self.graph.nodes[node]
            port = self.graph.sources[node, stage.inputs[0]]
            source = self._on_host(port, values) if port in values else None
            array, chunked = (source, None) if isinstance(source, np.ndarray) else (None, source)
            count, missing, chunk = self.lengths.reads(node, of), stage.missing_values(), self.plan.chunk
            types = self.plan.types[node]
            context = PrimeContext(array, types, bound, count, None, missing, chunk, of.shape, chunked)
            state = dict(stage.prime_fused_forward_state(context))
            if state:
                record.state[node] = state

    def _opener(self, step: Step, record: RunRecord, of: Stretch, open_sink: OpenSink) -> Callable[[], Sink] | None:
        """Return what opens the archive's memory for the tail of the last step, where it goes to the first segment."""
        node = step.nodes[-1]
        stage = self.graph.nodes[node]
        port = stage.outputs[0]
        if self.graph.sinks[0] != (node, port) or self.plan.types[node][port].layout != "chunked":
            return None
        chunks = self.lengths.chunks((node, port), of)
        words = chunks * stage.max_chunk_words(port, self.plan.types[node], self.plan.chunk)
        return lambda: open_sink(record, chunks, words)

    def _on_host(self, port: NodePort, values: dict[NodePort, Any]) -> PortValue:
        """Return a port's value in host memory; one that lies in the target's is brought over, and stays."""
        values[port] = self.to_host(values[port])
        found: PortValue = values[port]
        return found

    def to_host(self, value: Any) -> PortValue:
        """Return a port's value as NumPy arrays, copied where it lies in the target's memory."""
        memory = self.memory
        if memory is None or isinstance(value, np.ndarray):
            host: PortValue = value
            return host
        if isinstance(value, Chunked):
            arrays = (a if isinstance(a, np.ndarray) else memory.download(a) for a in (value.sizes, value.words))
            return Chunked(*arrays)
        return memory.download(value)

    def bring(self, out: NDArray[Any], value: Any) -> None:
        """Copy an array into `out`, from the target's memory where it lies there."""
        if self.memory is None or isinstance(value, np.ndarray):
            out[:] = value
        else:
            self.memory.download(value, out)

    def _group_forward(
        self,
        index: int,
        values: dict[NodePort, Any],
        record: RunRecord,
        bound: Bound | None,
        of: Stretch,
        threads: int,
        open_sink: Callable[[], Sink] | None,
        streams: Streams,
    ) -> dict[NodePort, Any]:
        plan, graph, lengths, memory = self.plan, self.plan.graph, self.lengths, self.memory
        step = plan.forward.steps[index]
        head, tail = step.nodes[0], step.nodes[-1]
        main = tail, graph.nodes[tail].outputs[0]
        kind = plan.types[tail][main[1]]
        program = self.program(step, "forward")
        port = graph.sources[head, graph.nodes[head].inputs[0]]
        source = values[port]
        if memory is not None and isinstance(source, np.ndarray):
            values[port] = source = memory.upload(source)
        if not program.primes:
            self._prime(step, values, record, bound, of)
        out, coded = None, lengths.elements(main, of)
        if kind.layout == "stream":
            out = streams.new((main, index), kind, coded, source)
        elif open_sink is None and memory is None:
            chunks = -(-coded // plan.chunk)
            words = chunks * graph.nodes[tail].max_chunk_words(main[1], plan.types[tail], plan.chunk)
            scratch = Scratch(np.empty(chunks, np.uint32), np.empty(words, np.uint32))
            open_sink = lambda: scratch  # noqa: E731
        run = GroupRun(record, lengths.reads(head, of), plan.chunk, threads, bound, open_sink, out, None, of, coded)
        return dict(program.forward(source, run))

    def _numpy_forward(
        self,
        index: int,
        values: dict[NodePort, Any],
        record: RunRecord,
        of: Stretch,
        open_sink: Callable[[], Sink] | None,
        streams: Streams,
    ) -> dict[NodePort, PortValue]:
        step = self.plan.forward.steps[index]
        for node in step.nodes:
            for name in self.graph.inputs(node):
                if self.graph.sources[node, name] in values:
                    self._on_host(self.graph.sources[node, name], values)
        count = self.lengths.elements((step.nodes[0], ""), of)  # a step of several nodes has no LAYOUT among them
        made = Gathered(index, count, streams, self.memory is None)
        span = self.plan.chunk if len(step.nodes) > 1 else 0
        inner = self.graph.inside(step.nodes)
        for begin, end in walk(len(step.nodes), count, self.plan.chunk):
            local: dict[NodePort, PortValue] = {}
            for node in step.nodes:
                stage = self.graph.nodes[node]
                keys = {p: self.graph.sources[node, p] for p in self.graph.inputs(node)}
                inputs = {p: given(k, values, local, begin, end, span) for p, k in keys.items()}
                reads = end - begin if len(step.nodes) > 1 else self.lengths.reads(node, of)
                outputs = stage.forward(inputs, self._scope(node, record, reads, of, forward=True))
                for port in stage.outputs:
                    kind = self.plan.types[node][port]
                    local[node, port] = check_value(outputs[port], kind, node, port, end - begin, self.plan.chunk)
            for key, value in local.items():
                if key not in inner:
                    made.add(key, begin, end, value)
        found = made.found()
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

    # -- decompression -------------------------------------------------------------------------------------

    def inverse(
        self,
        sinks: Mapping[NodePort, Any],
        record: RunRecord,
        count: int | Stretch,
        threads: int,
        out: Any,
        checkers: Mapping[NodePort, Checker] | None = None,
    ) -> Any:
        """Decompress the sinks' values into the 1-D array `out` and return it.

        Parameters
        ----------
        count : int or Stretch
            The part of the array that the values hold; a number: all of a 1-D array of so many elements.
        checkers : mapping, optional
            For each sink, what verifies the checksums of a half-open range of its chunks; called before those are read.
        """
        of = self.lengths.of(count)
        if self.allocation != "preallocate":
            return self._inverse(sinks, record, of, threads, out, checkers or {}, Streams(self.memory))
        with self._streams("inverse", of, out) as streams:
            return self._inverse(sinks, record, of, threads, out, checkers or {}, streams)

    def _inverse(
        self,
        sinks: Mapping[NodePort, Any],
        record: RunRecord,
        of: Stretch,
        threads: int,
        out: Any,
        checks: Mapping[NodePort, Checker],
        streams: Streams,
    ) -> Any:
        plan = self.plan.inverse
        values: dict[NodePort, Any] = dict(sinks)
        for i, step in enumerate(plan.steps):
            head = step.nodes[0]
            target_port = self.graph.sources[head, self.graph.nodes[head].inputs[0]]
            final = target_port == (INPUT, INPUT_PORT) and target_port not in values  # of several branches, the first counts
            mine = {port: check for port, check in checks.items() if port[0] in step.nodes}
            if step.kind == "numpy":
                for port, check in mine.items():
                    check(0, self.lengths.chunks(port, of))
                for port in [(n, p) for n in step.nodes for p in self.graph.nodes[n].outputs]:
                    if port in values:
                        self._on_host(port, values)
                dest = out if final and isinstance(out, np.ndarray) else None
                found = self._numpy_inverse(i, values, record, of, dest, streams)
            else:
                where = None if final and (self.memory is None or self.memory.owns(out)) else streams
                found = {target_port: self._group_inverse(i, values, record, of, threads, out, where, mine)}
            again = [value for key, value in found.items() if key in values]
            values = {**found, **values}
            streams.watch([*values.values(), *again])
            del found, again  # nothing else keeps a buffer past its last reader
            self._drop(plan, i, values)
        record.report("", peak_stream_bytes=streams.peak)
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

    def _group_inverse(
        self,
        index: int,
        values: Mapping[NodePort, Any],
        record: RunRecord,
        of: Stretch,
        threads: int,
        out: Any,
        streams: Streams | None,
        checks: Mapping[NodePort, Checker],
    ) -> Any:
        """Run a step's program, which writes to `out`, or to a stream of the run where `streams` is given."""
        step = self.plan.inverse.steps[index]
        head = step.nodes[0]
        port = self.graph.nodes[head].inputs[0]
        kind = self.plan.types[head][port]
        if kind.layout == "chunked":
            out = None
        elif streams is not None:
            like = out if self.memory is not None and self.memory.owns(out) else None
            out = streams.new((self.graph.sources[head, port], index), kind, self.lengths.reads(head, of), like)
        tail, count = (step.nodes[-1], self.graph.nodes[step.nodes[-1]].outputs[0]), self.lengths.reads(head, of)
        coded = self.lengths.elements(tail, of)
        run = GroupRun(record, count, self.plan.chunk, threads, out=out, stretch=of, coded=coded)
        layout, behind = self.graph.layout, self.graph.behind
        aside = {p for p in checks if layout in step.nodes and p[0] != layout and p[0] not in behind}
        run.checker = all_of(c for p, c in checks.items() if p not in aside)
        run.aside_checker = all_of(c for p, c in checks.items() if p in aside)
        ports = {(n, p): values[n, p] for n in step.nodes for p in self.graph.nodes[n].outputs if (n, p) in values}
        return self.program(step, "inverse").inverse(ports, run)

    def _between(self, value: Any, out: Any) -> None:
        """Copy a stream between host memory and the target's."""
        assert self.memory is not None
        if isinstance(out, np.ndarray):
            self.memory.download(value, out)
        else:
            self.memory.upload(value, out)

    def _numpy_inverse(
        self,
        index: int,
        values: Mapping[NodePort, PortValue],
        record: RunRecord,
        of: Stretch,
        out: NDArray[Any] | None,
        streams: Streams,
    ) -> dict[NodePort, PortValue]:
        step = self.plan.inverse.steps[index]
        count = self.lengths.reads(step.nodes[0], of)
        made = Gathered(index, count, streams, self.memory is None)
        cut = Cutter(values, self.plan.chunk, len(step.nodes) > 1)
        inner = self.graph.inside(step.nodes)
        for begin, end in walk(len(step.nodes), count, self.plan.chunk):
            local: dict[NodePort, PortValue] = {}
            for node in reversed(step.nodes):
                stage = self.graph.nodes[node]
                outputs = {p: local[node, p] if (node, p) in local else cut((node, p), begin, end) for p in stage.outputs}
                inputs = stage.inverse(outputs, self._scope(node, record, end - begin, of))
                check_given_back(node, stage.optional_inputs, self.graph.inputs(node), inputs)
                for port, value in inputs.items():
                    kind = self.plan.types[node][port]
                    local[self.graph.sources[node, port]] = check_value(value, kind, node, port, end - begin, self.plan.chunk)
            for key, value in local.items():
                if key == (INPUT, INPUT_PORT) and out is not None and isinstance(value, np.ndarray):
                    out[begin:end] = value
                elif key not in inner:
                    made.add(key, begin, end, value)
        found = made.found()
        if out is not None:
            found[INPUT, INPUT_PORT] = out
        return found

    # -- shared --------------------------------------------------------------------------------------------

    def _scope(self, node: str, record: RunRecord, count: int, of: Stretch | None = None, forward: bool = False) -> Scope:
        tail = tail_of(self.plan, node, record) if forward and node in self.graph.tails else None
        return Scope(record.of(node), self.plan.types[node], count, self.plan.chunk, partial(record.tally, node), tail, of)

    def _drop(self, plan: DirectionPlan, step: int, values: dict[NodePort, PortValue]) -> None:
        """Free the buffers that no later step reads."""
        if step == len(plan.steps) - 1:
            return
        for buffer in plan.buffers:
            if buffer.dies <= step and not buffer.again and buffer.port[0] != INPUT:
                values.pop(buffer.port, None)

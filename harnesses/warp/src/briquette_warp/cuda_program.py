"""Runs a composed group on a GPU: survey, one fused kernel, and a second one only where values are kept aside.

The target is any that offers sessions (see briquette-target-cuda); nothing of CUDA is imported here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.bounds import Extent
from briquette.errors import ArchiveError
from briquette.graph import NodePort
from briquette.harness import Direction, GroupProgram, GroupRun, Member, Overflow
from briquette.params import C_TYPES, Scalar
from briquette.ports import Chunked, PortValue, itemsize
from briquette.record import Bound, RunRecord
from briquette.stage import PrimeContext
from briquette.target import KernelSource

from . import reference
from .again import Again
from .chain import MISSING, Composition, is_layout
from .compose import cuda_source
from .cuda_run import (
    DONE,
    EXTENT,
    FLAG,
    FOUND,
    HEAD,
    KEPT,
    LANES,
    PARAMS_AT,
    SIDE_WORDS,
    SIZE,
    TILE_WORDS,
    WORDS,
    Enqueued,
    Given,
    Placed,
    Places,
    Side,
    blocks_of,
    given_of,
    nothing_aside,
    tables_of,
    up,
)
from .element import in_element_form

#: elements of the chunk one block codes
CHUNK: Final = 8192
PER_LANE: Final = 32

#: bytes that the survey's block sets to zero as fast as the driver does
_SURVEY_CLEARS: Final = 1 << 15


def tile_bytes(itemsize: int) -> int:
    """Return the shared memory of a tile: a row of 32 elements and 16 bytes for each lane."""
    return LANES * (PER_LANE * itemsize + 16)


def shared_bytes(parts: Composition) -> int:
    """Return the dynamic shared memory of a block."""
    sizes = {itemsize(d) for d in (parts.source, parts.first, parts.result)}
    return max(*(tile_bytes(s) for s in sizes), 4 * parts.most_words + 8)  # coders may read two words on


def resident_blocks(parts: Composition, direction: Direction) -> int:
    """Return how many blocks are to be resident on a multiprocessor, unless measuring has found better."""
    if any(map(in_element_form, parts.members)):
        return 2  # a lane turns 32 codes from one layout to the other: with more blocks they spill
    tiles = parts.selector is not None  # a selector holds codes and two orders of differences: 64 registers, else 48
    laid = parts.layout is not None  # predictors behind a layout look along several axes, and places take registers too
    if shared_bytes(parts) > 40_000:
        return 2 if laid or (tiles and direction == "forward") else 3
    return 4 if tiles or laid or itemsize(parts.source) < 4 else 5  # packing several elements into a word takes registers too


def refuse_geometry(parts: Composition) -> str | None:
    """Return why a warp's lanes cannot hold the chain's spans, or None."""
    if parts.chunk != CHUNK:
        return f"on CUDA a block codes chunks of {CHUNK} elements; the pipeline's spans give {parts.chunk}"
    for member in parts.members:
        span = member.spec.span
        if is_layout(member) and span < PER_LANE:
            return f"{member.node}: a LAYOUT over {span} elements is too short for a block to hold what its spans have in common"
        if span > PER_LANE * 32 or span & (span - 1):
            return f"{member.node}: a span of {span} elements is no power of two up to {PER_LANE * 32}, a warp's share"
    return None


class CudaProgram(GroupProgram):
    """A group compiled for the geometry of one segment a lane, in one direction."""

    primes = True

    def __init__(self, parts: Composition, direction: Direction, target: Any, source: KernelSource | None = None) -> None:
        self._parts = parts
        self._places: Places | None = None
        self._nodes = tuple(m.node for m in parts.members)
        self._target = target
        self._shared = shared_bytes(parts)
        self._aside_shared = CHUNK * itemsize(parts.source)
        self._module = target.compile(source or cuda_source(parts, direction, resident_blocks(parts, direction)))

    @property
    def captures(self) -> bool:
        """Whether a run needs nothing of the host between its kernels."""
        return self._parts.resolves

    @property
    def keeps_aside(self) -> bool:
        return self._parts.side is not None

    def capture_with(self, inverse: GroupProgram, session: Any, source: Any, run: GroupRun) -> Any:
        """Return this group and its inverse as graphs over the memory of `source`, for runs like `run`."""
        from .cuda_capture import CapturedGroup  # only here: it needs this module

        assert isinstance(inverse, CudaProgram)
        return CapturedGroup(self, inverse, session, source, run)

    def capacity(self, work: Enqueued) -> dict[NodePort, Placed]:
        """Return a run's values with all the room they have, for kernels that are told the sizes on the device."""
        tail, at = self._parts.members[-1], work.places
        found = {(tail.node, tail.stage.outputs[0]): self.main(work)}
        if self._parts.side is not None and work.side is not None:
            sizes, blocks = tables_of(work.session, at.kept, work.side.tables)
            found[self._parts.side] = Placed(sizes, work.side.words, blocks)
        if self._parts.tiles_sink is not None:
            found[self._parts.tiles_sink] = self._tiles(work, at.tiles_room)
        return found

    def resolved(self, source: Any, run: GroupRun) -> list[tuple[str, Scalar, Scalar]]:
        """Compress; return of each of the head's parameters its name, and its value as the device and as the host resolve it."""
        head, session = self._parts.head, self._target.session(source)
        assert head is not None
        assert head.op.params is not None
        with session.current():
            work = self.enqueue(session, source, run)
            made = session.peek(work.at(0) + PARAMS_AT, self._parts.param_bytes)
            work.heads[:] = [session.peek(work.control.pointer, 8 * HEAD)]
        self._state(work)
        expected = self._parts.param_block(run.record, run.stretch)
        first, found = self._parts.offsets[self._parts.members.index(head)], []
        for (name, kind), offset in zip(head.op.params.fields, head.op.params.offsets, strict=True):
            one, other = (struct.unpack_from("<" + C_TYPES[kind][1], block, first + offset)[0] for block in (made, expected))
            found.append((name, one, other))
        return found

    # -- compression ---------------------------------------------------------------------------------------

    def forward(self, source: Any, run: GroupRun) -> dict[NodePort, PortValue]:
        session = self._target.session(source)
        with session.current():
            return self.collect(self.enqueue(session, source, run))

    def enqueue(self, session: Any, source: Any, run: GroupRun) -> Enqueued:
        """Put the run's kernels into the session's stream; waits only where the head cannot resolve on the device."""
        work = self.prepare(session, source, run)
        self.start(work)
        return work

    def again(self, source: Any, run: GroupRun) -> Again | None:
        if not (self._parts.resolves and self._parts.coder) or self._parts.settled:
            return None  # the host has a part in it
        return Again(self, self._target.session, run, self._parts.side)

    def prepare(self, session: Any, source: Any, run: GroupRun) -> Enqueued:
        """Take the memory of a run; nothing is launched."""
        parts, at = self._parts, self.places(run)
        work = self.laid(session, source, run, session.memory(at.end))
        if parts.resolves and parts.settled:  # the head's parameters are made on the device, the others' are known here
            session.send(work.at(0) + PARAMS_AT, parts.param_block(self._settled(run), run.stretch, without_head=True))
        return work

    def places(self, run: GroupRun) -> Places:
        """Return where a run has what in its memory."""
        at = self._places
        if at is None or (at.chunks, at.kept) != (run.coded_chunks, run.chunks):
            at = self._places = Places.of(self._parts, run.coded_chunks, run.chunks)  # the next run is likely one of as many
        return at

    def laid(self, session: Any, source: Any, run: GroupRun, control: Any) -> Enqueued:
        """Return a run whose memory is `control`."""
        parts, chunks, at, base = self._parts, run.coded_chunks, self.places(run), control.pointer
        slots = [0] * (18 if parts.tiles_sink else 12)
        slots[:4] = source.pointer, run.coded, base + PARAMS_AT, run.out.pointer if run.out is not None else 0
        if parts.coder:
            tables = base + at.tables_at
            slots[4:9] = tables + 8 * blocks_of(chunks), base + at.words_at, tables, at.room, base + at.main_at
        if parts.side:
            slots[9:11] = base + at.kept_at, base + at.warps_at
        slots[11] = base + 8 * WORDS
        if parts.tiles_sink:
            tables = base + at.tiles_at
            slots[12:16] = tables + 8 * blocks_of(chunks), base + at.tile_words_at, tables, at.tiles_room
            slots[16:18] = base + at.tiles_main_at, base + 8 * TILE_WORDS
        return Enqueued(session, source, run, control, at, slots)

    def _settled(self, run: GroupRun) -> RunRecord:
        """Return the state of all members but the head, which do not look at the data."""
        given = given_of(run)
        return RunRecord({m.node: dict(_primed(m, given, None)) for m in self._parts.members if m is not self._parts.head})

    def start(self, work: Enqueued) -> None:
        """Launch a prepared run, and the side stream's kernel where its memory has been taken too."""
        session, chunks, pointer, cleared = work.session, work.places.chunks, work.control.pointer, work.places.cleared
        if self._parts.resolves and self._parts.settled:  # what lies there stays: a graph that is replayed sends nothing
            session.zero(pointer, PARAMS_AT)
            behind = PARAMS_AT + up(self._parts.param_bytes, 32)
            session.zero(pointer + behind, cleared - behind)
        elif not self._survey_clears(work):
            session.zero(pointer, cleared)
        self._resolve(work, work.at(0) + PARAMS_AT)
        if chunks:
            session.launch(self._module, "briquette_forward", chunks, self._shared, work.slots)
        if work.side is not None:
            self.start_side(work, work.side)

    def prepare_side(self, work: Enqueued, count: int) -> Side:
        """Take the memory of a side stream that keeps `count` values aside."""
        session, chunks = work.session, work.run.chunks
        item = itemsize(self._parts.source)
        # a list of positions, or a bitmap where that is smaller, and every value: never more than this
        room = min(chunks * (3 + CHUNK // 32 + CHUNK * item // 4), 4 * chunks + count * (2 + item // 4))
        tables = session.memory(8 * blocks_of(chunks) + 4 * chunks)
        sizes = tables.pointer + 8 * blocks_of(chunks)
        words, lookback = session.array(room, "uint32"), session.memory(8 * (chunks + 1))
        kept, warps = work.at(0) + work.places.kept_at, work.at(0) + work.places.warps_at
        addresses = [work.source.pointer, work.run.count, kept, warps, sizes, words.pointer]
        addresses += [tables.pointer, room, lookback.pointer, work.at(SIDE_WORDS)]
        return Side(tables, words, lookback, addresses)

    def start_side(self, work: Enqueued, side: Side) -> None:
        """Launch the kernel that writes the side stream."""
        work.session.zero(side.lookback.pointer, side.lookback.nbytes)
        work.session.launch(self._module, "briquette_aside", work.run.chunks, self._aside_shared, side.slots)

    def collect(self, work: Enqueued) -> dict[NodePort, PortValue]:
        """Wait for a run, write the members' state to the record, and return the values it made."""
        run, session = work.run, work.session
        # what can be done while the device works is done now
        main = self.main(work) if self._parts.coder else None
        self._state_later(work)
        work.heads[:] = [session.peek(work.control.pointer, 8 * HEAD)]
        if run.open_sink is not None:
            _ = run.record.state
        if any(any(session.peek(work.at(0) + PARAMS_AT + at, 4)) for at in self._parts.reports):
            return self._by_reference(work)
        return self.found(work, main)

    def found(self, work: Enqueued, main: Placed | None) -> dict[NodePort, PortValue]:
        """Return the values that a run has made, whose head has been read."""
        parts, run, session = self._parts, work.run, work.session
        found: dict[NodePort, Any] = {}
        tail = parts.members[-1]
        if main is not None:
            main.words.shorten(work.found(WORDS))
            found[tail.node, tail.stage.outputs[0]] = self._deliver(session, main, run)
        else:
            found[tail.node, tail.stage.outputs[0]] = run.out
        if parts.tiles_sink is not None:
            found[parts.tiles_sink] = self._tiles(work, work.found(TILE_WORDS))
        if parts.side is not None:
            found[parts.side] = self._aside(work)
        return found

    def main(self, work: Enqueued) -> Placed:
        """Return the coder's value with all the room it has."""
        session, at = work.session, work.places
        sizes, blocks = tables_of(session, at.chunks, work.control, at.tables_at)
        words = session.array(at.room, SIZE, work.control, at.words_at)
        return Placed(sizes, words, blocks, work.control, self._nodes)

    @staticmethod
    def _tiles(work: Enqueued, used: int) -> Placed:
        """Return the value of the tiles' own port."""
        at = work.places
        words = work.session.array(used, SIZE, work.control, at.tile_words_at)
        sizes, blocks = tables_of(work.session, at.chunks, work.control, at.tiles_at)
        return Placed(sizes, words, blocks)

    def _by_reference(self, work: Enqueued) -> dict[NodePort, PortValue]:
        """Do a run over that held codes which a policy of the group cannot carry, by the members' NumPy forms."""
        run, session = work.run, work.session
        source = session.read(work.source.pointer, np.empty(work.source.size, work.source.dtype))
        found: dict[NodePort, Any] = reference.forward(self._parts, source, run)
        for (node, name), value in found.items():
            if not isinstance(value, Chunked):
                session.write(run.out.pointer, np.ascontiguousarray(value))
                found[node, name] = run.out
            elif run.open_sink is None:
                found[node, name] = Placed(*self._place(session, value, 0, value.sizes.size, f"{node}.{name}"))
            elif node == self._parts.members[-1].node:
                sink = run.open_sink()
                if value.words.size > sink.words.size:
                    raise Overflow
                sink.sizes[:], sink.words[: value.words.size] = value.sizes, value.words
                found[node, name] = Chunked(sink.sizes, sink.words[: value.words.size])
        return found

    def _surveys_all(self, bound: Bound | None) -> bool:
        """Whether the survey looks at all of the data, not just for the first finite value."""
        return not self._parts.resolves or (bound is not None and bound.mode == "rel")

    def _survey_clears(self, work: Enqueued) -> bool:
        """Whether the survey is one block, and sets to zero what a run wants so."""
        parts = self._parts
        alone = parts.head is not None and not parts.settled and not self._surveys_all(work.run.bound)
        return alone and work.places.cleared <= _SURVEY_CLEARS

    def _resolve(self, work: Enqueued, params: int) -> None:
        """Bring the parameters to the device: resolved there, or here from what a survey of the data found."""
        parts, run, session, source = self._parts, work.run, work.session, work.source
        if parts.head is None:
            self._state(work)
            session.send(params, parts.param_block(run.record, run.stretch) or bytes(16))
            return
        eb = struct.unpack("<Q", struct.pack("<d", run.bound.eb if run.bound is not None else 0.0))[0]
        surveys_all = self._surveys_all(run.bound)
        slots = [source.pointer, run.count, work.at(FOUND), work.at(DONE), work.at(EXTENT), params, eb, int(surveys_all)]
        slots += [*parts.missing, *parts.missing[:1] * MISSING, *[0] * MISSING][:MISSING]
        slots += [work.at(0), work.places.cleared // 8 if self._survey_clears(work) else 0]
        grid = min(8 * session.multiprocessors(), max(1, run.count // (LANES * 16))) if surveys_all else 1
        session.launch(self._module, "briquette_survey", grid, 0, slots)
        if not parts.resolves:
            work.heads[:] = [session.peek(work.control.pointer, 8 * HEAD)]
            self._state(work)
            session.send(params, parts.param_block(run.record, run.stretch))

    def _state(self, work: Enqueued) -> None:
        """Prime the members: write to the record what the device knows already."""
        self._state_later(work)
        _ = work.run.record.state

    def _state_later(self, work: Enqueued) -> None:
        """The same when somebody asks for the state."""
        # not the run, which holds the record, which will hold this: only the garbage collector would end them
        work.run.record.defer(self.filler(given_of(work.run), work.heads))

    def filler(self, given: Given, heads: list[bytes]) -> Callable[[dict[str, dict[str, Any]]], None]:
        """Return what adds the members' state to that of a run, from the head of the control block."""
        parts = self._parts

        def fill(state: dict[str, dict[str, Any]]) -> None:
            head = heads[-1] if heads else bytes(8 * HEAD)
            lo, hi, first, some = struct.unpack_from(f"<3{parts.stated}d", head, 8 * EXTENT)
            found = Extent(lo, hi, first, bool(some))
            for member in parts.members:
                surveyed = found if member is parts.head else None
                primed = {} if member.node in state else dict(_primed(member, given, surveyed))
                if primed:
                    state[member.node] = primed

        return fill

    def _deliver(self, session: Any, value: Placed, run: GroupRun) -> Chunked:
        """Copy the payload to where the archive wants it, or leave it where it is."""
        if run.open_sink is None:
            return value
        sink = run.open_sink()
        used = value.words.size
        if used > sink.words.size:
            raise Overflow
        session.read(value.sizes.pointer, sink.sizes)
        session.read(value.words.pointer, sink.words[:used])
        return Chunked(sink.sizes, sink.words[:used])

    def _aside(self, work: Enqueued) -> Chunked:
        """Write the side stream of the values kept aside, where there are any."""
        parts, run, session = self._parts, work.run, work.session
        chunks = run.chunks
        assert parts.side is not None
        count = work.found(KEPT)
        run.record.report(parts.side[0], outliers=count)
        if not count:
            return nothing_aside(chunks)
        side = work.side
        if side is None:
            side = self.prepare_side(work, count)
            self.start_side(work, side)
            work.heads[:] = [session.peek(work.control.pointer, 8 * HEAD)]
        sizes, blocks = tables_of(session, chunks, side.tables)
        return Placed(sizes, side.words[: work.found(SIDE_WORDS)], blocks)

    # -- decompression -------------------------------------------------------------------------------------

    def inverse(self, values: Mapping[NodePort, PortValue], run: GroupRun) -> Any:
        session = self._target.session(run.out)
        with session.current():
            if run.checker is not None:
                run.checker(0, run.coded_chunks)
            if run.aside_checker is not None:
                run.aside_checker(0, run.chunks)
            at, _held = self.enqueue_inverse(session, values, run)
            damaged = any(session.peek(at, 4))
        self.check(damaged)
        return run.out

    def check(self, damaged: bool) -> None:
        """Raise where the kernels found words that no run writes."""
        if damaged:
            raise ArchiveError(f"the payload is damaged: its words cannot have been written by {' + '.join(self._nodes)}")

    def enqueue_inverse(self, session: Any, values: Mapping[NodePort, Any], run: GroupRun) -> tuple[int, list[Any]]:
        """Put decompression into the session's stream; return the address of the error flag, and what must outlive the run."""
        parts, chunks = self._parts, run.coded_chunks
        tail = parts.members[-1]
        main = values[tail.node, tail.stage.outputs[0]]
        slots = [0] * (21 if parts.tiles_sink else 17)
        if isinstance(main, Placed) and main.nodes == self._nodes:
            control, flag, params = main.control, main.control.pointer + 8 * FLAG, main.control.pointer + PARAMS_AT
        else:
            block = parts.param_block(run.record, run.stretch) or bytes(16)
            control = session.memory(16 + len(block))
            flag, params = control.pointer, control.pointer + 16
            session.send(control.pointer, bytes(16) + block)
        mine = {port: v for port, v in values.items() if port != parts.side} if parts.layout is not None else values
        begin = max(v.begin if isinstance(v, Placed) else 0 for v in mine.values())
        slots[:4] = run.out.pointer, begin * run.chunk + run.coded, begin, params
        if run.stretch is not None:
            slots[14:17] = run.stretch.laid_begin, run.stretch.begin, run.stretch.end
        slots[13] = flag
        held: list[Any] = [control]
        placed: list[Any] = []
        if isinstance(main, Chunked):
            placed = self._place(session, main, begin, chunks, f"{tail.node}.{tail.stage.outputs[0]}")
            slots[5:9] = [a.pointer for a in placed] + [main.words.size]
        else:
            placed = [self._upload(session, main) if isinstance(main, np.ndarray) else main]
            # a stream starts at the part's first element, and the kernel counts from the array's
            slots[4] = (placed[0].pointer - begin * run.chunk * placed[0].dtype.itemsize) % (1 << 64)
        if parts.side is not None and values[parts.side].words.size and parts.layout is None:
            side = self._place(session, values[parts.side], begin, chunks, ".".join(parts.side))
            slots[9:13] = [a.pointer for a in side] + [values[parts.side].words.size]
            held += side
        if parts.tiles_sink is not None:
            tiles = self._place(session, values[parts.tiles_sink], begin, chunks, ".".join(parts.tiles_sink))
            slots[17:21] = [a.pointer for a in tiles] + [values[parts.tiles_sink].words.size]
            held += tiles
        held += placed
        if chunks:
            session.launch(self._module, "briquette_inverse", chunks, self._shared, slots)
        if parts.layout is not None and parts.side is not None and values[parts.side].words.size:
            held += self._restore(session, values[parts.side], run, flag)
        return flag, held

    def _restore(self, session: Any, value: Any, run: GroupRun, flag: int) -> list[Any]:
        """Put the values kept aside in their places, in the array's chunks, when a LAYOUT has been undone."""
        assert self._parts.side is not None
        begin = value.begin if isinstance(value, Placed) else 0
        side = self._place(session, value, begin, run.chunks, ".".join(self._parts.side))
        slots = [run.out.pointer, begin * run.chunk + run.count, begin, *(a.pointer for a in side), value.words.size, flag]
        session.launch(self._module, "briquette_restore", run.chunks, 0, slots)
        return side

    def _place(self, session: Any, value: Chunked, begin: int, chunks: int, port: str) -> list[Any]:
        """Return sizes, words and the block offsets of a chunked value in device memory, where chunk `begin` is its first."""
        if isinstance(value, Placed):
            return [value.sizes, value.words, value.blocks]
        sizes = value.sizes
        if sizes.size != chunks:
            raise ArchiveError(f"{port} holds {sizes.size} chunks, the stream has {chunks}")
        if begin:
            sizes = np.concatenate([np.zeros(begin, np.uint32), sizes])
        sums = np.add.reduceat(sizes, np.arange(0, sizes.size, 64), dtype=np.uint64) if sizes.size else np.zeros(1, np.uint64)
        total = int(sums.sum())
        if total != value.words.size:
            raise ArchiveError(f"the chunk sizes of {port} add up to {total} words, {value.words.size} are there")
        offsets = np.cumsum(sums) - sums
        return [self._upload(session, a) for a in (sizes, value.words, offsets)]

    @staticmethod
    def _upload(session: Any, array: NDArray[Any]) -> Any:
        placed = session.array(array.size, array.dtype.name)
        session.write(placed.pointer, np.ascontiguousarray(array))
        return placed


def _primed(member: Member, given: Given, surveyed: Extent | None) -> Mapping[str, Any]:
    """Return the state that a member resolves, which sees no data here."""
    bound, count, chunk, shape = given
    missing = member.stage.missing_values()
    context = PrimeContext(None, member.types, bound, count, surveyed, missing, chunk=chunk, shape=shape)
    return member.stage.prime_fused_forward_state(context)

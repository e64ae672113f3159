"""Runs a composed group on a GPU: survey, one fused kernel, and a second one only where values are kept aside.

The target is any that offers sessions (see briquette-target-cuda); nothing of CUDA is imported here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.bounds import Extent
from briquette.errors import ArchiveError
from briquette.graph import NodePort
from briquette.harness import Direction, GroupProgram, GroupRun, Overflow
from briquette.ports import Chunked, PortValue
from briquette.stage import PrimeContext

from .chain import Composition
from .compose import cuda_source

LANES: Final = 256
#: elements of the chunk one block codes
CHUNK: Final = 8192
PER_LANE: Final = 32

# the head of the control block, in 64-bit words; zero at the start of a run
(WORDS, KEPT, SIDE_WORDS, FLAG, FOUND, DONE, EXTENT) = (0, 1, 2, 3, 4, 7, 8)
_HEAD: Final = 12
_PARAMS_AT: Final = 8 * _HEAD + 32 - 8 * _HEAD % 32


def tile_bytes(itemsize: int) -> int:
    """Return the shared memory of a tile: a row of 32 elements and 16 bytes for each lane."""
    return LANES * (PER_LANE * itemsize + 16)


def refuse_geometry(parts: Composition) -> str | None:
    """Return why a warp's lanes cannot hold the chain's spans, or None."""
    if parts.chunk != CHUNK:
        return f"on CUDA a block codes chunks of {CHUNK} elements; the pipeline's spans give {parts.chunk}"
    for member in parts.members:
        span = member.spec.span
        if span > PER_LANE * 32 or span & (span - 1):
            return f"{member.node}: a span of {span} elements is no power of two up to {PER_LANE * 32}, a warp's share"
    return None


@dataclass(frozen=True)
class Placed(Chunked):
    """A chunked value in device memory, with the word offset of every 64th chunk (uint64) beside it.

    `control` and `nodes` are the control block of the run that made it, and that run's members: their parameters lie
    there still, so that decompression by the same members needs no copy.
    """

    sizes: Any
    words: Any
    blocks: Any = None
    control: Any = None
    nodes: tuple[str, ...] = ()


@dataclass(eq=False)
class Enqueued:
    """What one compression run has put into its stream, before anything is known of it on the host."""

    session: Any
    source: Any
    run: GroupRun
    control: Any
    head: NDArray[np.uint64]
    warps_at: int
    tables: Any = None
    words: Any = None
    kept: Any = None

    def at(self, word: int) -> int:
        """Return the device address of a 64-bit word of the control block."""
        return int(self.control.pointer) + 8 * word


class CudaProgram(GroupProgram):
    """A group compiled for the geometry of one segment a lane, in one direction."""

    primes = True

    def __init__(self, parts: Composition, direction: Direction, target: Any) -> None:
        self._parts = parts
        self._nodes = tuple(m.node for m in parts.members)
        self._target = target
        sizes = {np.dtype(d).itemsize for d in (parts.source, parts.first, parts.result)}
        self._shared = max(*(tile_bytes(s) for s in sizes), 4 * parts.most_words + 8)  # coders may read two words on
        self._aside_shared = CHUNK * np.dtype(parts.source).itemsize
        resident = 5 if self._shared <= 40_000 else 3
        self._module = target.compile(cuda_source(parts, direction, resident))

    # -- compression ---------------------------------------------------------------------------------------

    def forward(self, source: Any, run: GroupRun) -> dict[NodePort, PortValue]:
        session = self._target.session(source)
        with session.current():
            return self.collect(self.enqueue(session, source, run))

    def enqueue(self, session: Any, source: Any, run: GroupRun) -> Enqueued:
        """Put the run's kernels into the session's stream; waits only where the head cannot resolve on the device."""
        parts, chunks = self._parts, run.chunks
        blocks = -(-chunks // 64)
        lookback = 8 * (chunks + 1)
        main_at = _PARAMS_AT + -(-max(parts.param_bytes, 16) // 32) * 32
        size = main_at + lookback + (4 * chunks if parts.side else 0)
        work = Enqueued(session, source, run, session.memory(size), np.empty(_HEAD, np.uint64), main_at + lookback)
        session.zero(work.control.pointer, size)
        params = work.control.pointer + _PARAMS_AT
        self._resolve(work, params)
        slots = np.zeros(12, np.uint64)
        slots[:4] = source.pointer, run.count, params, run.out.pointer if run.out is not None else 0
        if parts.coder:
            room = chunks * parts.most_words
            work.tables = session.memory(8 * blocks + 4 * chunks)
            work.words = session.array(room, "uint32")
            slots[4:9] = work.tables.pointer + 8 * blocks, work.words.pointer, work.tables.pointer, room, work.at(0) + main_at
        if parts.side:
            work.kept = session.memory(4 * chunks * LANES)
            slots[9:11] = work.kept.pointer, work.at(0) + work.warps_at
        slots[11] = work.at(WORDS)
        if chunks:
            session.launch(self._module, "briquette_forward", chunks, self._shared, slots)
        return work

    def collect(self, work: Enqueued) -> dict[NodePort, PortValue]:
        """Wait for a run, write the members' state to the record, and return the values it made."""
        parts, run, session = self._parts, work.run, work.session
        session.read(work.control.pointer, work.head)
        self._state(work)
        found: dict[NodePort, Any] = {}
        tail = parts.members[-1]
        if parts.coder:
            value = _placed(session, run.chunks, work.tables, work.words, int(work.head[WORDS]))
            value = replace(value, control=work.control, nodes=self._nodes)
            found[tail.node, tail.stage.outputs[0]] = self._deliver(session, value, run)
        else:
            found[tail.node, tail.stage.outputs[0]] = run.out
        if parts.side is not None:
            found[parts.side] = self._aside(work)
        return found

    def _resolve(self, work: Enqueued, params: int) -> None:
        """Bring the parameters to the device: resolved there, or here from what a survey of the data found."""
        parts, run, session, source = self._parts, work.run, work.session, work.source
        if parts.head is None:
            self._state(work)
            session.send(params, parts.param_block(run.record) or bytes(16))
            return
        relative = run.bound is not None and run.bound.mode == "rel"
        eb = struct.unpack("<Q", struct.pack("<d", run.bound.eb if run.bound is not None else 0.0))[0]
        surveys_all = relative or not parts.resolves
        slots = np.array(
            [source.pointer, run.count, work.at(FOUND), work.at(DONE), work.at(EXTENT), params, eb, int(surveys_all)], np.uint64
        )
        if parts.resolves:
            slots[7] = int(relative)
        grid = min(8 * session.multiprocessors(), max(1, run.count // (LANES * 16))) if surveys_all else 1
        session.launch(self._module, "briquette_survey", grid, 0, slots)
        if not parts.resolves:
            session.read(work.control.pointer, work.head)
            self._state(work)
            session.send(params, parts.param_block(run.record))

    def _state(self, work: Enqueued) -> None:
        """Prime the members: write to the record what the device knows already."""
        run = work.run
        lo, hi, first, some = work.head[EXTENT : EXTENT + 4].view(np.float64).tolist()
        for member in self._parts.members:
            if member.node in run.record.state:
                continue
            surveyed = Extent(lo, hi, first, bool(some)) if member is self._parts.head else None
            state = dict(member.stage.prime_fused_forward_state(PrimeContext(None, member.types, run.bound, run.count, surveyed)))
            if state:
                run.record.state[member.node] = state

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
        parts, run, session, kept = self._parts, work.run, work.session, work.kept
        chunks = run.chunks
        assert parts.side is not None
        count = int(work.head[KEPT])
        run.record.report(parts.side[0], outliers=count)
        if not count:
            return Chunked(np.zeros(chunks, np.uint32), np.empty(0, np.uint32))
        item = np.dtype(parts.source).itemsize
        # a list of positions, or a bitmap where that is smaller, and every value: never more than this
        room = min(chunks * (3 + CHUNK // 32 + CHUNK * item // 4), 4 * chunks + count * (1 + item // 4) + count)
        blocks = -(-chunks // 64)
        tables = session.memory(8 * blocks + 4 * chunks)
        words = session.array(room, "uint32")
        lookback = session.memory(8 * (chunks + 1))
        session.zero(lookback.pointer, lookback.nbytes)
        slots = np.array(
            [
                work.source.pointer,
                run.count,
                kept.pointer,
                work.at(0) + work.warps_at,
                tables.pointer + 8 * blocks,
                words.pointer,
                tables.pointer,
                room,
                lookback.pointer,
                work.at(SIDE_WORDS),
            ],
            np.uint64,
        )
        session.launch(self._module, "briquette_aside", chunks, self._aside_shared, slots)
        session.read(work.control.pointer, work.head)
        used = int(work.head[SIDE_WORDS])
        value = _placed(session, chunks, tables, words, used)
        if run.open_sink is None:
            return value
        sizes, held = np.empty(chunks, np.uint32), np.empty(used, np.uint32)
        return Chunked(session.read(value.sizes.pointer, sizes), session.read(value.words.pointer, held))

    # -- decompression -------------------------------------------------------------------------------------

    def inverse(self, values: Mapping[NodePort, PortValue], run: GroupRun) -> Any:
        session = self._target.session(run.out)
        with session.current():
            if run.checker is not None:
                run.checker(0, run.chunks)
            at, _held = self.enqueue_inverse(session, values, run)
            flag = session.read(at, np.empty(1, np.uint32))
        if flag[0]:
            names = " + ".join(m.node for m in self._parts.members)
            raise ArchiveError(f"the payload is damaged: its words cannot have been written by {names}")
        return run.out

    def enqueue_inverse(self, session: Any, values: Mapping[NodePort, Any], run: GroupRun) -> tuple[int, list[Any]]:
        """Put decompression into the session's stream; return the address of the error flag, and what must outlive the run."""
        parts, chunks = self._parts, run.chunks
        tail = parts.members[-1]
        main = values[tail.node, tail.stage.outputs[0]]
        slots = np.zeros(14, np.uint64)
        if isinstance(main, Placed) and main.nodes == self._nodes:
            control, flag, params = main.control, main.control.pointer + 8 * FLAG, main.control.pointer + _PARAMS_AT
        else:
            block = parts.param_block(run.record) or bytes(16)
            control = session.memory(16 + len(block))
            flag, params = control.pointer, control.pointer + 16
            session.send(control.pointer, bytes(16) + block)
        slots[:4] = run.out.pointer, run.count, 0, params
        slots[13] = flag
        held: list[Any] = [control]
        placed: list[Any] = []
        if isinstance(main, Chunked):
            placed = self._place(session, main, chunks, f"{tail.node}.{tail.stage.outputs[0]}")
            slots[5:9] = [a.pointer for a in placed] + [main.words.size]
        else:
            placed = [self._upload(session, main) if isinstance(main, np.ndarray) else main]
            slots[4] = placed[0].pointer
        if parts.side is not None and values[parts.side].words.size:
            side = self._place(session, values[parts.side], chunks, ".".join(parts.side))
            slots[9:13] = [a.pointer for a in side] + [values[parts.side].words.size]
            held += side
        held += placed
        if chunks:
            session.launch(self._module, "briquette_inverse", chunks, self._shared, slots)
        return flag, held

    def _place(self, session: Any, value: Chunked, chunks: int, port: str) -> list[Any]:
        """Return sizes, words and the block offsets of a chunked value in device memory."""
        if isinstance(value, Placed):
            return [value.sizes, value.words, value.blocks]
        sizes = value.sizes
        if sizes.size != chunks:
            raise ArchiveError(f"{port} holds {sizes.size} chunks, the stream has {chunks}")
        sums = np.add.reduceat(sizes, np.arange(0, chunks, 64), dtype=np.uint64) if chunks else np.zeros(1, np.uint64)
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


def _placed(session: Any, chunks: int, tables: Any, words: Any, used: int) -> Placed:
    """Return what a kernel has written: block offsets, then sizes in `tables`, and the words used of `words`."""
    blocks = -(-chunks // 64)
    return Placed(
        session.array(chunks, "uint32", tables, 8 * blocks),
        session.array(used, "uint32", words.owner),
        session.array(blocks, "uint64", tables),
    )

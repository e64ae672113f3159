"""Runs a composed group on the host: chunks shared out to threads, buffers that grow, payloads joined in stream order."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError
from briquette.graph import NodePort
from briquette.harness import Direction, GroupProgram, GroupRun, Overflow
from briquette.outliers import max_chunk_words
from briquette.ports import Chunked, PortValue, Words
from briquette.target import Module, Target

from .chain import Composition
from .compose import ENTRY

# the slots of cuda/host.cuh
(
    IN,
    COUNT,
    BEGIN,
    END,
    PARAMS,
    STREAM,
    SIZES,
    WORDS,
    WORDS_ROOM,
    SIDE_SIZES,
    SIDE,
    SIDE_ROOM,
    WORDS_USED,
    SIDE_USED,
    NEXT,
    KEPT,
    TILE_SIZES,
    TILES,
    TILES_USED,
    MARKS,
) = range(20)
(I_OUT, I_COUNT, I_BEGIN, I_END, I_PARAMS, I_STREAM, I_SIZES, I_WORDS, I_SIDE_SIZES, I_SIDE, I_BAD, I_TILE_SIZES, I_TILES) = (
    range(13)
)
# behind them, of a chain with a LAYOUT: the first laid-out element, and the part of the array that is wanted
I_LAID, I_WANTED, I_WANTED_END = range(13, 16)
DONE, WORDS_FULL, SIDE_FULL, DAMAGED = range(4)

#: chunks a thread decodes at a time: a checksum block
_BLOCK: Final = 64


@dataclass
class _Part:
    """The payload of one thread's range of chunks."""

    words: Words
    used: int
    side: Words
    side_used: int
    kept: int
    tiles: Words
    tiles_used: int

    def grow_side(self, worst: int) -> None:
        """Make room for values kept aside, of `worst` words a chunk at most."""
        grown = np.empty(max(2 * self.side.size, 4 * worst), np.uint32)
        grown[: self.side_used] = self.side[: self.side_used]
        self.side = grown


class HostProgram(GroupProgram):
    """A group compiled for the one-lane host geometry, in one direction.

    `grain`: ranges of chunks a thread codes, one where there is one thread; checksum blocks a thread decodes at a time.
    """

    def __init__(self, parts: Composition, direction: Direction, module: Module, target: Target, grain: int = 1) -> None:
        self._parts = parts
        self._grain = grain
        self._entry = ENTRY[direction]
        self._module = module
        self._target = target

    # -- compression ---------------------------------------------------------------------------------------

    def forward(self, source: NDArray[Any], run: GroupRun) -> dict[NodePort, PortValue]:
        parts = self._parts
        params = np.frombuffer(parts.param_block(run.record, run.stretch) or bytes(16), np.uint8)
        sink = run.open_sink() if run.open_sink is not None else None
        sizes = sink.sizes if sink is not None else np.empty(0, np.uint32)
        side_sizes = np.empty(run.chunks if parts.side else 0, np.uint32)
        tile_sizes = np.empty(run.coded_chunks if parts.tiles_sink else 0, np.uint32)
        # a LAYOUT's chunks are not the array's: what is kept aside is marked, and written down when all are done
        marks = np.zeros(run.count if parts.layout and parts.side else 0, np.uint8)
        cuts = run.threads * self._grain if run.threads > 1 else 1
        ranges = _ranges(run.coded_chunks, cuts)
        room = sink.words if sink is not None else np.empty(0, np.uint32)

        def work(i: int) -> _Part:
            begin, end = ranges[i]
            # each range codes into its share of the room; where it does not fit, into memory of its own
            share = room[room.size * i // len(ranges) : room.size * (i + 1) // len(ranges)] if len(ranges) > 1 else room
            try:
                return self._encode(source, run, params, sizes, share, side_sizes, tile_sizes, marks, begin, end)
            except Overflow:
                if len(ranges) == 1:
                    raise
                own = np.empty((end - begin) * parts.most_words, np.uint32)
                return self._encode(source, run, params, sizes, own, side_sizes, tile_sizes, marks, begin, end)

        made = self._target.map(work, range(len(ranges)), run.threads)
        found: dict[NodePort, PortValue] = {}
        tail = parts.members[-1]
        port = (tail.node, tail.stage.outputs[0])
        if sink is not None:
            found[port] = Chunked(sizes, room[: self._join(room, made, run.threads)])
        else:
            assert run.out is not None
            found[port] = run.out
        if parts.side is not None:
            kept = made
            if parts.layout is not None:
                kept = self._aside(source, run, side_sizes, marks, cuts, any(p.kept for p in made))
            found[parts.side] = Chunked(side_sizes, np.concatenate([p.side[: p.side_used] for p in kept]))
            run.record.report(parts.side[0], outliers=sum(p.kept for p in made))
        if parts.tiles_sink is not None:
            found[parts.tiles_sink] = Chunked(tile_sizes, np.concatenate([p.tiles[: p.tiles_used] for p in made]))
        return found

    def _encode(
        self,
        source: NDArray[Any],
        run: GroupRun,
        params: NDArray[np.uint8],
        sizes: Words,
        words: Words,
        side_sizes: Words,
        tile_sizes: Words,
        marks: NDArray[np.uint8],
        begin: int,
        end: int,
    ) -> _Part:
        """Code the chunks [begin, end); the side buffer grows until everything is kept."""
        side = np.empty(0, np.uint32)
        part = _Part(words, 0, side, 0, 0, np.empty((end - begin) * self._parts.most_tile_words, np.uint32), 0)
        slots = np.zeros(20, np.uint64)
        slots[[IN, COUNT, PARAMS, MARKS]] = source.ctypes.data, run.coded, params.ctypes.data, marks.ctypes.data
        slots[TILE_SIZES] = tile_sizes.ctypes.data if tile_sizes.size else 0
        slots[[SIZES, SIDE_SIZES]] = sizes.ctypes.data, side_sizes.ctypes.data
        slots[STREAM] = run.out.ctypes.data if run.out is not None else 0
        at = begin
        while at < end:
            slots[[BEGIN, END]] = at, end
            slots[[WORDS, WORDS_ROOM]] = words.ctypes.data + 4 * part.used, words.size - part.used
            slots[[SIDE, SIDE_ROOM]] = part.side.ctypes.data + 4 * part.side_used, part.side.size - part.side_used
            slots[TILES] = part.tiles.ctypes.data + 4 * part.tiles_used
            status = self._module.call(self._entry, slots)
            part.used += int(slots[WORDS_USED])
            part.side_used += int(slots[SIDE_USED])
            part.kept += int(slots[KEPT])
            part.tiles_used += int(slots[TILES_USED])
            at = int(slots[NEXT])
            if status == WORDS_FULL:
                raise Overflow
            if status == SIDE_FULL:
                part.grow_side(max_chunk_words(run.chunk, source.dtype.itemsize))
        return part

    def _aside(
        self, source: NDArray[Any], run: GroupRun, sizes: Words, marks: NDArray[np.uint8], cuts: int, some: bool
    ) -> list[_Part]:
        """Write down the marked values of a chain with a LAYOUT, in the array's order."""
        nothing = np.empty(0, np.uint32)
        if not some:
            sizes[:] = 0
            return [_Part(nothing, 0, nothing, 0, 0, nothing, 0)]
        ranges = _ranges(run.chunks, cuts)

        def work(i: int) -> _Part:
            at, end = ranges[i]
            part = _Part(nothing, 0, nothing, 0, 0, nothing, 0)
            slots = np.zeros(20, np.uint64)
            slots[[IN, COUNT, MARKS, SIDE_SIZES]] = source.ctypes.data, run.count, marks.ctypes.data, sizes.ctypes.data
            while at < end:
                slots[[BEGIN, END]] = at, end
                slots[[SIDE, SIDE_ROOM]] = part.side.ctypes.data + 4 * part.side_used, part.side.size - part.side_used
                status = self._module.call("briquette_aside", slots)
                part.side_used += int(slots[SIDE_USED])  # before it grows, which keeps what is used
                at = int(slots[NEXT])
                if status == SIDE_FULL:
                    part.grow_side(max_chunk_words(run.chunk, source.dtype.itemsize))
            return part

        return self._target.map(work, range(len(ranges)), run.threads)

    def _join(self, room: Words, made: list[_Part], threads: int) -> int:
        """Move the ranges' payloads together at the front of the room; return the words in all."""
        starts = np.cumsum([0, *(p.used for p in made)])
        if starts[-1] > room.size:
            raise Overflow
        if any(p.used and not np.may_share_memory(p.words, room) for p in made):
            # one did not fit its share: moving it in could run over what stands behind
            for part in made[1:]:
                part.words = part.words[: part.used].copy()
        for i, part in enumerate(made):  # in order: a payload only moves down, over what has been moved already
            to, source = room[starts[i] : starts[i + 1]], part.words[: part.used]
            if not part.used or source.ctypes.data == to.ctypes.data:
                continue
            if np.may_share_memory(to, source):
                to[:] = source
            else:
                self._target.map(partial(_copy, to, source, threads), range(threads), threads)
        return int(starts[-1])

    # -- decompression -------------------------------------------------------------------------------------

    def inverse(self, values: Mapping[NodePort, PortValue], run: GroupRun) -> NDArray[Any]:
        parts, out = self._parts, run.out
        assert out is not None
        tail, nothing = parts.members[-1], Chunked(np.empty(0, np.uint32), np.empty(0, np.uint32))
        params = np.frombuffer(parts.param_block(run.record, run.stretch) or bytes(16), np.uint8)
        main = values[tail.node, tail.stage.outputs[0]]
        side = values[parts.side] if parts.side is not None else nothing
        tiles = values[parts.tiles_sink] if parts.tiles_sink is not None else nothing
        assert isinstance(side, Chunked)
        assert isinstance(tiles, Chunked)
        offsets = _offsets(main, run.coded_chunks, f"{tail.node}.{tail.stage.outputs[0]}")
        side_offsets = _offsets(side, run.chunks if parts.side else 0, ".".join(parts.side or ()))
        tile_offsets = _offsets(tiles, run.coded_chunks if parts.tiles_sink else 0, ".".join(parts.tiles_sink or ()))

        common = np.zeros(16, np.uint64)
        common[[I_OUT, I_COUNT, I_PARAMS]] = out.ctypes.data, run.coded, params.ctypes.data
        if run.stretch is not None:
            common[[I_LAID, I_WANTED, I_WANTED_END]] = run.stretch.laid_begin, run.stretch.begin, run.stretch.end
        words_at = side_at = tiles_at = 0
        if isinstance(main, Chunked):
            common[I_SIZES], words_at = main.sizes.ctypes.data, main.words.ctypes.data
        else:
            common[I_STREAM] = main.ctypes.data
        if parts.side is not None:
            common[I_SIDE_SIZES], side_at = side.sizes.ctypes.data, side.words.ctypes.data
        if parts.tiles_sink is not None:
            common[I_TILE_SIZES], tiles_at = tiles.sizes.ctypes.data, tiles.words.ctypes.data

        def work(span: tuple[int, int]) -> None:
            begin, end = span
            if run.checker is not None:
                run.checker(begin, end)
            slots = common.copy()
            slots[I_BEGIN], slots[I_END] = begin, end
            if words_at:
                slots[I_WORDS] = words_at + 4 * int(offsets[begin])
            if side_at and parts.layout is None:
                slots[I_SIDE] = side_at + 4 * int(side_offsets[begin])
            if tiles_at:
                slots[I_TILES] = tiles_at + 4 * int(tile_offsets[begin])
            self._run(self._entry, slots)

        def restore(span: tuple[int, int]) -> None:
            begin, end = span
            if run.aside_checker is not None:
                run.aside_checker(begin, end)
            slots = common.copy()
            slots[I_COUNT], slots[I_BEGIN], slots[I_END] = run.count, begin, end
            slots[I_SIDE] = side_at + 4 * int(side_offsets[begin])
            self._run("briquette_restore", slots)

        self._target.map(work, _blocks(run.coded_chunks, _BLOCK * self._grain), run.threads)
        if parts.layout is not None and parts.side is not None:  # in the array's chunks, once all codes are there
            self._target.map(restore, _blocks(run.chunks, _BLOCK * self._grain), run.threads)
        return out

    def _run(self, entry: str, slots: NDArray[np.uint64]) -> None:
        if self._module.call(entry, slots) != DONE:
            names = " + ".join(m.node for m in self._parts.members)
            raise ArchiveError(f"chunk {int(slots[I_BAD])} is damaged: its words cannot have been written by {names}")


def _copy(to: Words, source: Words, threads: int, i: int) -> None:
    """Copy a thread's share of `source`."""
    begin, end = to.size * i // threads, to.size * (i + 1) // threads
    to[begin:end] = source[begin:end]


def _ranges(chunks: int, threads: int) -> list[tuple[int, int]]:
    """Cut `chunks` into one range for each of `threads`, none empty; a stream without chunks has one empty range."""
    count = max(min(threads, chunks), 1)
    cuts = [chunks * i // count for i in range(count + 1)]
    return list(itertools.pairwise(cuts))


def _blocks(chunks: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(at + size, chunks)) for at in range(0, chunks, size)]


def _offsets(value: PortValue, chunks: int, port: str) -> NDArray[np.int64]:
    """Return the word offset of each chunk, after checking that the sizes add up to the words there are."""
    if not isinstance(value, Chunked):
        return np.empty(0, np.int64)
    if value.sizes.size != chunks:
        raise ArchiveError(f"{port} holds {value.sizes.size} chunks, the stream has {chunks}")
    offsets = np.concatenate([[0], np.cumsum(value.sizes, dtype=np.int64)])
    if offsets[-1] != value.words.size:
        raise ArchiveError(f"the chunk sizes of {port} add up to {offsets[-1]} words, {value.words.size} are there")
    return offsets

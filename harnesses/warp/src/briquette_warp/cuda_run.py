"""What a run of a group on a GPU holds: values that lie in device memory, and the memory of a run that has been started."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from briquette.harness import GroupRun
from briquette.ports import Chunked
from briquette.record import Bound

from .chain import Composition

LANES: Final = 256

# the head of the control block, in 64-bit words; zero at the start of a run
(WORDS, KEPT, SIDE_WORDS, FLAG, FOUND, DONE, EXTENT, TILE_WORDS) = (0, 1, 2, 3, 4, 7, 8, 12)
HEAD: Final = 13
PARAMS_AT: Final = 8 * HEAD + 32 - 8 * HEAD % 32

SIZE: Final = np.dtype(np.uint32)
_OFFSET: Final = np.dtype(np.uint64)

#: a run's bound, its count and chunk, and the array's shape
Given = tuple[Bound | None, int, int, tuple[int, ...]]
#: chunk sizes and block offsets in device memory
Tables = tuple[Any, Any]


@dataclass(frozen=True)
class Placed(Chunked):
    """A chunked value in device memory, with the word offset of every 64th chunk (uint64) beside it.

    `control` and `nodes` are the control block of the run that made it, and that run's members: their parameters lie
    there still, so that decompression by the same members needs no copy. A part of it is the whole of it and `begin`, the
    first chunk of the part.
    """

    sizes: Any
    words: Any
    blocks: Any = None
    control: Any = None
    nodes: tuple[str, ...] = ()
    begin: int = 0

    def cut(self, first: int, last: int) -> Placed:
        return replace(self, begin=self.begin + first)


@dataclass(eq=False)
class Side:
    """Memory of the side stream of one run, and the slots of the kernel that writes it."""

    tables: Any
    words: Any
    lookback: Any
    slots: list[int]


class Places(NamedTuple):
    """Where in one allocation a run has what, in bytes: each allocation is a call of the driver, each end another.

    `chunks` are those of the codes, `kept` those of the array, which differ behind a LAYOUT. `cleared` bytes are zero at the
    start. Tables are the block offsets and chunk sizes of the coder's payload and, where they
    leave the group, of the tiles; `room` and `tiles_room` are words.
    """

    chunks: int
    kept: int
    main_at: int
    tiles_main_at: int
    warps_at: int
    cleared: int
    kept_at: int
    tables_at: int
    words_at: int
    room: int
    tiles_at: int
    tile_words_at: int
    tiles_room: int
    end: int

    @classmethod
    def of(cls, parts: Composition, chunks: int, kept: int) -> Places:
        main_at = PARAMS_AT + up(max(parts.param_bytes, 16), 32)
        tiles_main_at = main_at + 8 * (chunks + 1)
        warps_at = tiles_main_at + (8 * (chunks + 1) if parts.tiles_sink else 0)
        cleared = up(warps_at + (4 * kept if parts.side else 0), 8)
        kept_at = up(cleared, 32)
        tables_at = up(kept_at + (4 * kept * LANES if parts.side else 0), 256)
        if parts.layout is not None:  # whoever keeps a value aside sets a bit anywhere in the array
            cleared = tables_at
        words_at = up(tables_at + 8 * blocks_of(chunks) + 4 * chunks, 256)
        room = chunks * parts.most_words
        tiles_at = up(words_at + 4 * room, 256)
        tile_words_at, tiles_room = up(tiles_at + 8 * blocks_of(chunks) + 4 * chunks, 256), chunks * parts.most_tile_words
        end = tile_words_at + 4 * tiles_room if parts.tiles_sink else words_at + 4 * room if parts.coder else tables_at
        places = main_at, tiles_main_at, warps_at, cleared, kept_at, tables_at, words_at, room
        return cls(chunks, kept, *places, tiles_at, tile_words_at, tiles_room, end)


@dataclass(eq=False, slots=True)
class Enqueued:
    """What one compression run has put into its stream, before anything is known of it on the host.

    `control` is all the memory of the run but that of its side stream: its head is the control block, the rest lies at `places`.
    `heads` holds what the kernels have written to the control block's head, once that is known: who waits for it need not keep
    the run's memory.
    """

    session: Any
    source: Any
    run: GroupRun
    control: Any
    places: Places
    slots: list[int]
    side: Side | None = None
    heads: list[bytes] = field(default_factory=list)

    def at(self, word: int) -> int:
        """Return the device address of a 64-bit word of the control block."""
        return int(self.control.pointer) + 8 * word

    def found(self, word: int) -> int:
        """Return what the kernels have written to a 64-bit word of the control block's head."""
        return int.from_bytes(self.heads[-1][8 * word : 8 * word + 8], "little")


def blocks_of(chunks: int) -> int:
    """Return how many entries the table of block offsets has."""
    return -(-chunks // 64)


def up(nbytes: int, unit: int) -> int:
    return -(-nbytes // unit) * unit


def given_of(run: GroupRun) -> Given:
    return run.bound, run.count, run.chunk, run.shape


def tables_of(session: Any, chunks: int, memory: Any, at: int = 0) -> Tables:
    """Return the tables a kernel writes, from byte `at` of `memory` on."""
    blocks = blocks_of(chunks)
    return session.array(chunks, SIZE, memory, at + 8 * blocks), session.array(blocks, _OFFSET, memory, at)


@lru_cache(maxsize=16)
def nothing_aside(chunks: int) -> Chunked:
    """Return the side stream of a run that keeps no value aside."""
    sizes, words = np.zeros(chunks, np.uint32), np.empty(0, np.uint32)
    sizes.flags.writeable = False  # runs share it
    return Chunked(sizes, words)

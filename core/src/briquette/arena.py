"""Where the streams between a plan's steps lie: each in memory of its own, or all in one arena that runs use again.

``minimal`` allocates a buffer when it is born and frees it after its last reader: the peak is what is alive at once.
``preallocate`` colours the buffers' lifetimes into one arena, which is kept from run to run; no run allocates a stream
between steps then. A run has its arena to itself: as many are made as runs of one executable overlap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np

from ._forklock import ForkLock
from .graph import NodePort
from .plan import Buffer
from .ports import Chunked, PortType
from .target import DeviceMemory

Allocation = Literal["minimal", "preallocate"]
ALLOCATIONS: Final[tuple[str, ...]] = get_args(Allocation)

#: what an offset is known by: a port and the step that writes it (an inverse may write a port that fans out more than once)
Slot = tuple[NodePort, int]


class ArenaLayout(NamedTuple):
    """Places in an arena.

    Attributes
    ----------
    offsets : mapping of (port, step that writes it) to int
        In bytes, multiples of the alignment.
    total : int
        Bytes of the arena.
    peak : int
        Bytes alive at once, at most: no arena can be smaller.
    """

    offsets: Mapping[Slot, int]
    total: int
    peak: int


def layout(buffers: Sequence[Buffer], sizes: Sequence[int], align: int = 256) -> ArenaLayout:
    """Colour the buffers' lifetimes into one arena: buffers that are alive at one step never overlap.

    Three greedy orders are tried, and the smallest arena is kept: first fit by birth, first fit by size, and first fit by
    birth from both ends in turn, which gives chains the least there can be (but for alignment).

    Parameters
    ----------
    buffers : sequence of Buffer
    sizes : sequence of int
        Bytes of each.
    align : int
        Bytes; every offset is a multiple.
    """
    room = [-(-size // align) * align for size in sizes]
    by_birth = sorted(range(len(buffers)), key=lambda i: (buffers[i].born, -room[i], buffers[i].port))
    by_size = sorted(by_birth, key=lambda i: -room[i])
    tries = [_places(buffers, room, by_birth), _places(buffers, room, by_size)]
    tries.append(_places(buffers, room, by_birth, _peak(buffers, room)))
    totals = [max((at + sizes[i] for i, at in places.items()), default=0) for places in tries]
    best = totals.index(min(totals))
    offsets = {(buffers[i].port, buffers[i].born): at for i, at in tries[best].items()}
    return ArenaLayout(offsets, totals[best], _peak(buffers, sizes))


def _peak(buffers: Sequence[Buffer], sizes: Sequence[int]) -> int:
    alive = (sum(s for b, s in zip(buffers, sizes, strict=True) if b.born <= at.born <= b.dies) for at in buffers)
    return max(alive, default=0)


def _places(buffers: Sequence[Buffer], room: Sequence[int], order: Sequence[int], ceiling: int | None = None) -> dict[int, int]:
    """Return the offset of each buffer, placed in `order` at the lowest gap, every other one right below `ceiling`."""
    at: dict[int, int] = {}
    for turn, i in enumerate(order):
        mine = buffers[i]
        taken = sorted((at[j], at[j] + room[j]) for j in at if buffers[j].born <= mine.dies and mine.born <= buffers[j].dies)
        gaps: list[tuple[int, int | None]] = []
        end = 0
        for first, after in taken:
            gaps.append((end, first))
            end = max(end, after)
        gaps.append((end, None))
        lowest = next(low for low, high in gaps if high is None or high - low >= room[i])
        highest = -1
        if ceiling is not None and turn % 2:
            tops = ((low, ceiling if high is None else min(high, ceiling)) for low, high in gaps)
            highest = max((high - room[i] for low, high in tops if high - low >= room[i]), default=-1)
        at[i] = lowest if highest < 0 else highest
    return at


class Arenas:
    """The arenas of an executable that no run has at the moment; shared by threads."""

    def __init__(self) -> None:
        self._free: dict[Hashable, list[Any]] = {}
        self._lock = ForkLock()

    def take(self, nbytes: int, memory: DeviceMemory | None, like: Any) -> Any:
        """Return an arena of `nbytes` or more where `like` lies; one that has become too small makes way for it."""
        found = None
        with self._lock.current:
            free = self._free.get(None if memory is None else memory.place(like), [])
            if free:
                found = free.pop(next((i for i, a in enumerate(free) if a.nbytes >= nbytes), -1))
        if found is not None and found.nbytes >= nbytes:
            return found
        del found  # before there is another
        return np.empty(nbytes, np.uint8) if memory is None else memory.reserve(nbytes, like)

    def give(self, arena: Any, memory: DeviceMemory | None, like: Any) -> None:
        """Take an arena back from a run that is over."""
        with self._lock.current:
            free = self._free.setdefault(None if memory is None else memory.place(like), [])
            free.append(arena)
            free.sort(key=lambda a: int(a.nbytes))

    def clear(self) -> None:
        """Free the arenas that no run has."""
        with self._lock.current:
            self._free.clear()


class Streams:
    """The streams of one run.

    Attributes
    ----------
    peak : int
        Most bytes of them held at once so far, the whole arena included; those that steps use inside are not known.
    """

    def __init__(
        self, memory: DeviceMemory | None, arena: Any = None, offsets: Mapping[Slot, int] | None = None, like: Any = None
    ) -> None:
        self._memory, self._arena, self._offsets, self._like = memory, arena, offsets or {}, like
        self._base = 0 if arena is None else int(arena.nbytes)
        self._parts: list[Any] = []
        self.peak = self._base

    def new(self, slot: Slot, kind: PortType, count: int, like: Any = None) -> Any:
        """Return where the step of `slot` writes its port: the arena's place, or new memory where `like` lies."""
        offset = self._offsets.get(slot)
        if offset is None:
            return np.empty(count, kind.numpy) if self._memory is None else self._memory.empty(count, kind.dtype, like)
        if self._memory is None:
            part = self._arena[offset : offset + count * kind.itemsize].view(kind.numpy)
        else:
            part = self._memory.part(self._arena, offset, count, kind.dtype, self._like)
        self._parts.append(part)
        return part

    def places(self, slot: Slot) -> bool:
        """Whether the arena has a place for the port."""
        return slot in self._offsets

    def lasting(self, value: Any) -> Any:
        """Return a value that later steps do not overwrite: what a stage gives back may be a view of its input."""
        if not isinstance(self._arena, np.ndarray):
            return value
        if isinstance(value, Chunked):
            return Chunked(self.lasting(value.sizes), self.lasting(value.words))
        return value.copy() if isinstance(value, np.ndarray) and np.may_share_memory(value, self._arena) else value

    def watch(self, values: Iterable[Any]) -> None:
        """Take note of what is alive now."""
        alive = self._base
        for value in values:
            if not isinstance(value, Chunked) and not any(value is part for part in self._parts):
                alive += int(value.nbytes)
        self.peak = max(self.peak, alive)

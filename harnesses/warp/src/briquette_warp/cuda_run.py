"""What a run of a group on a GPU holds: values that lie in device memory, and the memory of a run that has been started."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from briquette.harness import GroupRun
from briquette.ports import Chunked


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


@dataclass(eq=False, slots=True)
class Enqueued:
    """What one compression run has put into its stream, before anything is known of it on the host.

    `control` is all the memory of the run but that of its side stream: its head is the control block, `tables_at` is where block
    offsets and chunk sizes lie in it, `tiles_at` where those of the tiles do that leave the group. `head` is what the kernels
    have written to the control block's head.
    """

    session: Any
    source: Any
    run: GroupRun
    control: Any
    cleared: int
    warps_at: int
    kept_at: int
    tables_at: int
    slots: list[int]
    words: Any = None
    tiles_at: int = 0
    tile_words: Any = None
    side: Side | None = None
    head: bytes = b""

    def at(self, word: int) -> int:
        """Return the device address of a 64-bit word of the control block."""
        return int(self.control.pointer) + 8 * word

    def found(self, word: int) -> int:
        """Return what the kernels have written to a 64-bit word of the control block's head."""
        return int.from_bytes(self.head[8 * word : 8 * word + 8], "little")

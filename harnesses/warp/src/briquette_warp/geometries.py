"""The geometries of this harness among which measuring may choose; the first of each list is the one used without."""

from __future__ import annotations

from typing import Final

from briquette.harness import Direction, Geometry

from .chain import Composition
from .compose import cuda_source, host_source
from .cuda_program import resident_blocks, shared_bytes

#: on the host, ranges of chunks a thread codes, or checksum blocks it decodes at a time
_GRAINS: Final = (1, 2, 4)
#: lanes shorter than this leave a host's vector registers half empty
_SHORT: Final = 32
#: blocks of 256 lanes resident on a multiprocessor; more than 8 leave too few registers a lane
_BLOCKS: Final = range(2, 9)
#: shared memory of a multiprocessor of the largest kind, and what the driver takes of it for each block
_SHARED: Final = 228 << 10
_RESERVED: Final = 1 << 10


def host_geometries(parts: Composition, direction: Direction) -> list[Geometry]:
    """Return lengths of a lane's array with grains of work."""
    lanes = sorted({parts.lane, *(n for n in parts.lanes if n >= _SHORT)}, key=lambda n: (n != parts.lane, n))
    if any("elems_per_lane" in member.op.geometry for member in parts.members):
        lanes = [parts.lane]
    sources = {n: host_source(Composition(parts.members, parts.chunk, n), direction) for n in lanes}
    return [Geometry((("lane", n), ("grain", grain)), sources[n]) for n in lanes for grain in _GRAINS]


def cuda_geometries(parts: Composition, direction: Direction) -> list[Geometry]:
    """Return numbers of blocks that ``__launch_bounds__`` makes room for, as far as their shared memory has room."""
    own = resident_blocks(parts, direction)
    fitting = [n for n in _BLOCKS if n * (shared_bytes(parts) + _RESERVED) <= _SHARED]
    counts = sorted({own, *fitting}, key=lambda n: (n != own, n))
    return [Geometry((("blocks", n),), cuda_source(parts, direction, n)) for n in counts]

"""Bitmaps of a chunk's words, coded by eliminating repeated bytes level by level (docs/format.md, "Bitmaps")."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError, PipelineError

from ._chunks import Bytes, Reader

DEEPEST: Final = 4
ADAPTIVE: Final = "adaptive"

Flags = NDArray[np.bool_]


def check_levels(stage: str, levels: object) -> None:
    """Raise `PipelineError` unless `levels` is "adaptive" or an integer from 0 to 4."""
    if levels == ADAPTIVE or (isinstance(levels, int) and not isinstance(levels, bool) and 0 <= levels <= DEEPEST):
        return
    raise PipelineError(f"levels = {levels!r} of stage {stage!r} must be {ADAPTIVE!r} or an integer from 0 to {DEEPEST}")


def suffix(levels: int | str, planes: int = 0) -> str:
    """Return how the type names of policies say `levels`, and the number of planes."""
    return ("A" if levels == ADAPTIVE else f"L{levels}") + (f"P{planes}" if planes else "")


def repeats_not(values: NDArray[Any]) -> Flags:
    """Return which values differ from the one before; the first one's is 0."""
    flags = np.empty(values.size, np.bool_)
    flags[:1] = values[:1] != 0
    np.not_equal(values[1:], values[:-1], out=flags[1:])
    return flags


def spread(flags: Flags, kept: NDArray[Any]) -> NDArray[Any]:
    """Return the kept values where they are flagged, and zeros between them."""
    values = np.zeros(flags.size, kept.dtype)
    values[flags] = kept
    return values


def repeat(flags: Flags, kept: NDArray[Any]) -> NDArray[Any]:
    """Undo the elimination of what `repeats_not` does not flag."""
    return np.concatenate((np.zeros(1, kept.dtype), kept))[np.cumsum(flags)]


def encode(flags: Flags, levels: int | str, lag: int = 0) -> Bytes:
    """Return the coded form of a bitmap; "adaptive" `levels` are those that take fewest bytes, ties to the lowest.

    With a `lag` the bitmap's own bytes count as repeated where they are those `lag` bytes before, and what is kept of them is
    what differs.
    """
    most = DEEPEST if isinstance(levels, str) else levels
    bitmaps, kept = [np.packbits(flags, bitorder="little")], []
    for level in range(most):
        bytes_ = bitmaps[-1]
        if level == 0 and lag:
            bytes_ = bytes_.copy()
            bytes_[lag:] ^= bitmaps[0][:-lag]
            changed: Flags = bytes_ != 0
        else:
            changed = repeats_not(bytes_)
        kept.append(bytes_[changed])
        bitmaps.append(np.packbits(changed, bitorder="little"))
    if not isinstance(levels, str):
        return np.concatenate((bitmaps[most], *kept[::-1]))
    sizes = [bitmaps[d].size + sum(k.size for k in kept[:d]) for d in range(most + 1)]
    depth = sizes.index(min(sizes))
    return np.concatenate((np.array([depth], np.uint8), bitmaps[depth], *kept[:depth][::-1]))


def decode(coded: Reader, count: int, levels: int | str, lag: int = 0) -> Flags:
    """Return a bitmap of `count` bits as booleans; raise `ArchiveError` for what `encode` never writes."""
    depth = int(coded.take(1)[0]) if isinstance(levels, str) else levels
    if depth > DEEPEST:
        raise ArchiveError(f"a coded bitmap has {depth} levels; there are no more than {DEEPEST}")
    bits = [count]
    for _ in range(depth):
        bits.append(-(-bits[-1] // 8))
    bitmap = coded.take(-(-bits[depth] // 8))
    for level in range(depth, 0, -1):
        flags = _flags(bitmap, bits[level])
        kept = coded.take(int(np.count_nonzero(flags)))
        bitmap = _rows_added(flags, kept, lag) if level == 1 and lag else repeat(flags, kept)
    return _flags(bitmap, count)


def _rows_added(flags: Flags, kept: Bytes, lag: int) -> Bytes:
    """Undo the elimination of bytes that are those `lag` before."""
    rows = np.zeros(-(-flags.size // lag) * lag, np.uint8)
    rows[: flags.size][flags] = kept
    bitmap: Bytes = np.bitwise_xor.accumulate(rows.reshape(-1, lag), axis=0).reshape(-1)[: flags.size]
    return bitmap


def _flags(bitmap: Bytes, count: int) -> Flags:
    every = np.unpackbits(bitmap, bitorder="little")
    if every[count:].any():
        raise ArchiveError(f"a coded bitmap of {count} bits has bits set behind them")
    return every[:count].view(np.bool_)

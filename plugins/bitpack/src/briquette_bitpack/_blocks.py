"""Packing of blocks of 32 unsigned values at one width each, vectorized over the blocks that share a width.

Values are first narrowed to the smallest lane (8, 16, 32 or 64 bits) that holds them; neighbouring lanes of 64-bit numbers
are then joined pairwise until each number holds a whole run of values without gaps, and the runs are shifted into words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.ports import Words

from ._segments import BLOCK, Bytes, Index, rows

_LANES: Final = (8, 16, 32, 64)
_Numbers = NDArray[np.uint64]


def lane_of(width: int) -> int:
    """Return the narrowest lane, in bits, that holds values of `width` bits."""
    return next(lane for lane in _LANES if width <= lane)


def by_width(widths: Bytes) -> Iterator[tuple[int, Index]]:
    """Yield each width that occurs, but 0, and the indices that have it, ascending."""
    order = np.argsort(widths, kind="stable")
    ends = np.cumsum(np.bincount(widths))
    for width in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
        if width:
            yield width, order[ends[width - 1] : ends[width]]


def pack(values: NDArray[Any], widths: Bytes, offsets: Index, words: Words) -> None:
    """Write blocks into `words`.

    Parameters
    ----------
    values : unsigned array, shape (32 * blocks,)
    widths : uint8 array, shape (blocks,)
        Bits of each block's values, which must fit.
    offsets : int64 array, shape (blocks,)
        First word of each block; block i fills ``widths[i]`` words.
    words : uint32 array, contiguous
    """
    if not widths.size:
        return
    lane = lane_of(int(widths.max()))
    narrow = values.astype(f"u{lane // 8}", copy=False).reshape(-1, BLOCK)
    for width, which in by_width(widths):
        block_lane = lane_of(width)
        numbers = np.take(narrow, which, axis=0).astype(f"u{block_lane // 8}", copy=False).view(np.uint64)
        packed = _shift_in(_join(numbers, width, block_lane), width * (64 // block_lane), width)
        rows(words, width)[offsets[which]] = packed.view(np.uint32)[:, :width].view(f"V{4 * width}")[:, 0]


def unpack(words: Words, widths: Bytes, offsets: Index) -> NDArray[Any]:
    """Return the blocks' values, shape (32 * blocks,), in the narrowest unsigned type that holds them all."""
    lane = lane_of(int(widths.max(initial=0)))
    values = np.zeros((widths.size, BLOCK), f"u{lane // 8}")
    source = np.concatenate((words, np.zeros(1, np.uint32)))  # blocks are read in whole 64-bit numbers
    for width, which in by_width(widths):
        block_lane = lane_of(width)
        packed = rows(source, width + width % 2)[offsets[which]].view(np.uint64).reshape(which.size, -1)
        numbers = _split(_shift_out(packed, width * (64 // block_lane), block_lane // 2), width, block_lane)
        values[which] = numbers.view(f"u{block_lane // 8}")
    return values.reshape(-1)


def _mask(bits: int, every: int) -> Any:
    """Return `bits` ones at the low end of every field of `every` bits."""
    return np.uint64(sum(((1 << bits) - 1) << at for at in range(0, 64, every)))


def _join(numbers: _Numbers, width: int, lane: int) -> _Numbers:
    """Close the gaps between the lanes of each number, in place: 64 / lane values of `width` bits at its low end."""
    while lane < 64:
        if width < lane:
            low = _mask(width, 2 * lane)
            high = numbers >> np.uint64(lane - width)
            high &= low << np.uint64(width)
            numbers &= low
            numbers |= high
        width, lane = 2 * width, 2 * lane
    return numbers


def _split(numbers: _Numbers, width: int, lane: int) -> _Numbers:
    """Undo `_join`, in place; bits above the values must be zero."""
    field = 64
    while field > lane:
        field //= 2
        bits = width * (field // lane)
        if bits < field:
            low = _mask(bits, 2 * field)
            high = numbers << np.uint64(field - bits)
            high &= low << np.uint64(field)
            numbers &= low
            numbers |= high
    return numbers


def _shift_in(numbers: _Numbers, bits: int, width: int) -> _Numbers:
    """Concatenate the low `bits` bits of each row's numbers; shape (blocks, ceil(width / 2))."""
    out = np.empty((numbers.shape[0], -(-width // 2)), np.uint64)
    for j in range(numbers.shape[1]):
        k, shift = divmod(j * bits, 64)
        if shift:
            out[:, k] |= numbers[:, j] << np.uint64(shift)
            if shift + bits > 64:
                out[:, k + 1] = numbers[:, j] >> np.uint64(64 - shift)
        else:
            out[:, k] = numbers[:, j]
    return out


def _shift_out(packed: _Numbers, bits: int, items: int) -> _Numbers:
    """Undo `_shift_in`: `items` numbers of `bits` bits a row."""
    out = np.empty((packed.shape[0], items), np.uint64)
    for j in range(items):
        k, shift = divmod(j * bits, 64)
        np.right_shift(packed[:, k], np.uint64(shift), out=out[:, j])
        if shift + bits > 64:
            out[:, j] |= packed[:, k + 1] << np.uint64(64 - shift)
    if bits < 64:
        out &= _mask(bits, 64)
    return out

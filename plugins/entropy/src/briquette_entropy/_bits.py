"""Fields of any number of bits, put together many at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from briquette.ports import Words


def put_bits(words: Words, at: NDArray[np.int64], lengths: NDArray[np.int64], values: NDArray[np.uint64]) -> None:
    """Set fields of up to 32 bits that begin at bit `at`, in ascending order; bit 0 is the highest of the first word."""
    if not at.size:
        return
    placed = values << (64 - at % 32 - lengths).astype(np.uint64)
    for step, part in enumerate((placed >> np.uint64(32), placed & np.uint64(0xFFFFFFFF))):
        where = at // 32 + step
        groups = np.flatnonzero(np.diff(where, prepend=-1))
        merged = np.bitwise_or.reduceat(part, groups).astype(np.uint32)
        inside = where[groups] < words.size
        words[where[groups][inside]] |= merged[inside]

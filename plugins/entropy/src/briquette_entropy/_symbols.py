"""The alphabet of `huffman`: small numbers, runs of zeros, and classes of large numbers with raw bits behind them.

Every element is a number u: the code itself where its type is unsigned, else with its sign folded into the lowest bit. A token
is a number other than 0, or a whole run of zeros within a chunk.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

#: numbers below have a symbol of their own (0 is never used: zeros are runs)
LITERALS: Final = 4096
#: runs below have a symbol of their own; from there on each octave has four, by the two bits behind the highest
EXACT_RUNS: Final = 16
#: elements of a run, at most: runs end where a multiple of this many elements of their chunk does
LONGEST_RUN: Final = 1 << 16
#: the first symbol of runs
RUNS: Final = LITERALS
#: the first symbol of large numbers, which have one for each bit length from 13 to 64
LARGE: Final = RUNS + EXACT_RUNS + 4 * 13
_LARGE_BITS: Final = LITERALS.bit_length()
SYMBOLS: Final = LARGE + 64 - _LARGE_BITS + 1
MAX_CONTEXTS: Final = 8

#: the bits behind each symbol, the number or length those are added to, and whether it is a run
EXTRA: Final[Index] = np.zeros(SYMBOLS, np.int64)
BASE: Final[NDArray[np.uint64]] = np.zeros(SYMBOLS, np.uint64)
IS_RUN: Final[NDArray[np.bool_]] = np.zeros(SYMBOLS, np.bool_)
BASE[:LITERALS] = np.arange(LITERALS)
BASE[RUNS : RUNS + EXACT_RUNS] = np.arange(EXACT_RUNS)
for _octave in range(4, 17):
    _at = RUNS + EXACT_RUNS + 4 * (_octave - 4)
    EXTRA[_at : _at + 4] = _octave - 2
    BASE[_at : _at + 4] = (1 << _octave) + (np.arange(4, dtype=np.uint64) << np.uint64(_octave - 2))
for _bits in range(_LARGE_BITS, 65):
    EXTRA[LARGE + _bits - _LARGE_BITS] = _bits - 1
    BASE[LARGE + _bits - _LARGE_BITS] = np.uint64(1 << (_bits - 1))
IS_RUN[RUNS:LARGE] = True


class Tokens(NamedTuple):
    """What a run of whole chunks consists of.

    Attributes
    ----------
    at : int64 array
        The first element of each token.
    symbols, contexts : int64 arrays
    raw : uint64 array
        The value of the bits behind the symbol.
    """

    at: Index
    symbols: Index
    contexts: Index
    raw: NDArray[np.uint64]


def follows(contexts: int) -> Index:
    """Return the context after each symbol: 0 after a run, else the number's bit length, the last one for all beyond."""
    lengths = bit_lengths(BASE)
    lengths[IS_RUN] = 0
    return np.minimum(lengths, contexts - 1)


def bit_lengths(numbers: NDArray[np.uint64]) -> Index:
    """Return the bit length of each number."""
    high = numbers >> np.uint64(32)
    halves = np.where(high > 0, high, numbers & np.uint64(0xFFFFFFFF)).astype(np.float64)
    lengths: Index = np.frexp(halves)[1].astype(np.int64)
    lengths[high > 0] += 32
    return lengths


def fold(codes: NDArray[Any]) -> NDArray[np.uint64]:
    """Return codes as numbers."""
    if codes.dtype.kind == "i":
        codes = ((codes << 1) ^ (codes >> (8 * codes.itemsize - 1))).view(f"u{codes.itemsize}")
    return codes.astype(np.uint64)


def unfold(numbers: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo `fold`."""
    if dtype.kind == "i":
        numbers = (numbers >> np.uint64(1)) ^ -(numbers & np.uint64(1))
    return numbers.astype(dtype)


def tokens(numbers: NDArray[np.uint64], chunk: int, after: Index) -> Tokens:
    """Return the tokens of `numbers`, which begin at a chunk; `after` is what `follows` says."""
    zero = numbers == 0
    begins = zero.copy()
    begins[1:] &= ~zero[:-1]
    begins[::chunk] = zero[::chunk]
    if chunk > LONGEST_RUN:
        begins[::LONGEST_RUN] = zero[::LONGEST_RUN]  # the numbers are those of one chunk then
    at: Index = np.flatnonzero(~zero | begins)
    values = numbers[at]
    runs = values == 0
    values[runs] = (np.append(at[1:], numbers.size) - at)[runs]
    lengths = bit_lengths(values)
    long, large = runs & (values >= EXACT_RUNS), ~runs & (values >= LITERALS)
    symbols: Index = np.where(large, LARGE - _LARGE_BITS + lengths, values.view(np.int64))
    symbols[runs] += RUNS
    quarter = (values[long] >> (lengths[long] - 3).astype(np.uint64)).astype(np.int64) & 3
    symbols[long] = RUNS + EXACT_RUNS + 4 * (lengths[long] - 5) + quarter
    contexts = np.empty(at.size, np.int64)
    contexts[1:] = after[symbols[:-1]]
    contexts[at % chunk == 0] = after.max()
    return Tokens(at, symbols, contexts, values - BASE[symbols])

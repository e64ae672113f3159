"""NumPy codec of the outliers side stream: values that quantizers keep bit for bit (docs/format.md, "Outliers").

Chunks without outliers take no words. For the others the smallest of three position forms and of two value forms is chosen,
so that the side stream stays small whether outliers are rare, scattered, in blobs, or one repeated fill value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .errors import ArchiveError, UsageError
from .ports import Chunked, Words

#: positions within a chunk are 16-bit
MAX_CHUNK: Final = 65_536
_LIST, _BITMAP, _RUNS = 0, 1, 2
_EACH, _VALUE_RUNS = 0, 1

_Positions = NDArray[np.int64]


def max_chunk_words(chunk: int, itemsize: int) -> int:
    """Return the most words a chunk of `chunk` elements of `itemsize` bytes can take: a bitmap and every value."""
    return 1 + -(-chunk // 32) + -(-chunk * itemsize // 4)


def none_kept(count: int, chunk: int) -> Chunked:
    """Return the side stream of a piece of `count` elements in which nothing is kept aside."""
    return Chunked(np.zeros(-(-count // chunk), np.uint32), np.empty(0, np.uint32))


def encode(kept: NDArray[np.bool_], values: NDArray[Any], chunk: int) -> Chunked:
    """Encode the values to keep aside.

    Parameters
    ----------
    kept : bool array, shape (count,)
        Which elements are outliers.
    values : array, shape (count,)
        The stream, of an element type of 2, 4 or 8 bytes; only its bits matter.
    chunk : int
        Elements of an archive chunk, 1 to 65,536. The piece begins at a chunk's first element.

    Returns
    -------
    Chunked
        One size for each of the ceil(count / chunk) chunks, and their words.

    Raises
    ------
    UsageError
        For a chunk or an element type the format cannot hold, or arrays of different lengths.
    """
    if kept.shape != values.shape:
        raise UsageError(f"{kept.size} flags do not match {values.size} values; give one flag for each value")
    bits = values.view(_bits_dtype(values.dtype, chunk))
    if not kept.any():
        return none_kept(kept.size, chunk)
    where = np.flatnonzero(kept)
    chunks = -(-kept.size // chunk)
    limits = np.searchsorted(where, np.arange(chunks + 1, dtype=np.int64) * chunk)
    picked = bits[where]
    sizes = np.zeros(chunks, np.uint32)
    parts: list[Words] = []
    for c in np.flatnonzero(limits[1:] > limits[:-1]).tolist():
        lo, hi = int(limits[c]), int(limits[c + 1])
        length = min(chunk, kept.size - c * chunk)
        words = _encode_chunk(where[lo:hi] - c * chunk, picked[lo:hi], length)
        sizes[c] = words.size
        parts.append(words)
    return Chunked(sizes, np.concatenate(parts))


def decode(value: Chunked, count: int, chunk: int, dtype: DTypeLike) -> tuple[_Positions, NDArray[Any]]:
    """Decode what `encode` made.

    Parameters
    ----------
    value : Chunked
    count : int
        Elements of the piece.
    chunk : int
        Elements of an archive chunk.
    dtype : dtype
        Element type of the values, 2, 4 or 8 bytes.

    Returns
    -------
    positions : int64 array, shape (outliers,)
        Ascending, counted from the piece's first element.
    values : array of `dtype`, shape (outliers,)

    Raises
    ------
    ArchiveError
        If the words are not a side stream of `count` elements.
    """
    kind = np.dtype(dtype)
    positions: list[_Positions] = []
    values: list[NDArray[Any]] = []
    for first, where, what in _chunks(value, count, chunk, kind):
        positions.append(where + first)
        values.append(what)
    if not positions:
        return np.empty(0, np.int64), np.empty(0, kind)
    return np.concatenate(positions), np.concatenate(values).view(kind)


def restore(value: Chunked, chunk: int, into: NDArray[Any]) -> None:
    """Write the values that `encode` kept over those of the piece, a chunk at a time, so that little memory is needed.

    Parameters
    ----------
    value : Chunked
    chunk : int
        Elements of an archive chunk.
    into : array, shape (count,)
        The piece's values, of an element type of 2, 4 or 8 bytes. After an error some of them may be overwritten.

    Raises
    ------
    ArchiveError
        If the words are not a side stream of `count` elements.
    """
    for first, where, what in _chunks(value, into.size, chunk, into.dtype):
        into[first : first + chunk][where] = what.view(into.dtype)


def _chunks(value: Chunked, count: int, chunk: int, kind: np.dtype[Any]) -> Iterator[tuple[int, _Positions, NDArray[Any]]]:
    """Yield, for each chunk with outliers, its first element, their positions within it, and their bits."""
    bits = _bits_dtype(kind, chunk)
    chunks = -(-count // chunk)
    total = int(value.sizes.sum(dtype=np.uint64))
    if value.sizes.size != chunks or total != value.words.size:
        raise ArchiveError(
            f"the outliers' sizes are those of {value.sizes.size} chunks of {total} words; "
            f"there should be {chunks} chunks, and there are {value.words.size} words"
        )
    at = 0
    filled = np.flatnonzero(value.sizes)
    for c, size in zip(filled.tolist(), value.sizes[filled].tolist(), strict=True):
        where, what = _decode_chunk(value.words[at : at + size], min(chunk, count - c * chunk), bits)
        yield c * chunk, where, what
        at += size


def _bits_dtype(dtype: np.dtype[Any], chunk: int) -> np.dtype[Any]:
    if dtype.itemsize not in (2, 4, 8):
        raise UsageError(f"outliers of type {dtype} cannot be kept; the format holds values of 2, 4 or 8 bytes")
    if not 1 <= chunk <= MAX_CHUNK:
        raise UsageError(f"a chunk of {chunk} elements cannot hold outliers; their positions are 16-bit, so use 1 to {MAX_CHUNK}")
    return np.dtype(f"u{dtype.itemsize}")


def _starts(changes: NDArray[np.bool_]) -> _Positions:
    """Return where runs begin, given whether each element but the first begins one."""
    return np.concatenate(([0], np.flatnonzero(changes) + 1)).astype(np.int64)


def _run_lengths(starts: _Positions, count: int) -> _Positions:
    return np.diff(starts, append=count)


def _halves(numbers: NDArray[Any]) -> Words:
    """Return 16-bit numbers as words, the last one padded with zero."""
    out = np.zeros(-(-numbers.size // 2), np.uint32)
    out.view(np.uint16)[: numbers.size] = numbers
    return out


def _words_for(count: int, bits: np.dtype[Any]) -> int:
    return -(-count * bits.itemsize // 4)


def _as_words(bits: NDArray[Any]) -> Words:
    return _halves(bits) if bits.itemsize == 2 else np.ascontiguousarray(bits).view(np.uint32)


def _encode_chunk(where: _Positions, bits: NDArray[Any], length: int) -> Words:
    n = where.size
    pos_starts = _starts(np.diff(where) != 1)
    val_starts = _starts(bits[1:] != bits[:-1])
    pos_words = (-(-n // 2), -(-length // 32), 1 + pos_starts.size)
    runs = val_starts.size
    val_words = (_words_for(n, bits.dtype), 1 + -(-runs // 2) + _words_for(runs, bits.dtype))
    pos_form, val_form = pos_words.index(min(pos_words)), val_words.index(min(val_words))
    parts = [np.array([n | pos_form << 28 | val_form << 30], np.uint32)]
    if pos_form == _LIST:
        parts.append(_halves(where))
    elif pos_form == _BITMAP:
        flags = np.zeros(-(-length // 32) * 32, np.uint8)
        flags[where] = 1
        parts.append(np.packbits(flags, bitorder="little").view(np.uint32))
    else:
        spans = where[pos_starts] | (_run_lengths(pos_starts, n) - 1) << 16
        parts += [np.array([spans.size], np.uint32), spans.astype(np.uint32)]
    if val_form == _EACH:
        parts.append(_as_words(bits))
    else:
        parts += [np.array([runs], np.uint32), _halves(_run_lengths(val_starts, n) - 1), _as_words(bits[val_starts])]
    return np.concatenate(parts)


class _Reader:
    """Takes words off the front of one chunk's part; running out is an error, not an exception of NumPy."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._at = 0

    def take(self, n: int) -> Words:
        if n > self._words.size - self._at:
            raise ArchiveError(f"a chunk's outliers need {self._at + n} words or more, but hold {self._words.size}")
        self._at += n
        return self._words[self._at - n : self._at]

    def number(self) -> int:
        return int(self.take(1)[0])

    def halves(self, n: int) -> _Positions:
        return self.values(n, np.dtype(np.uint16)).astype(np.int64)

    def values(self, n: int, bits: np.dtype[Any]) -> NDArray[Any]:
        numbers = np.ascontiguousarray(self.take(_words_for(n, bits))).view(bits)
        if numbers.size > n and numbers[n]:
            raise ArchiveError(f"padding after {n} 16-bit numbers of the outliers is {numbers[n]:#x}, not zero")
        return numbers[:n]

    def end(self) -> None:
        if self._at != self._words.size:
            raise ArchiveError(f"a chunk's outliers end after {self._at} words, but hold {self._words.size}")


def _decode_chunk(words: Words, length: int, bits: np.dtype[Any]) -> tuple[_Positions, NDArray[Any]]:
    reader = _Reader(words)
    head = reader.number()
    n, pos_form, val_form = head & 0x0FFFFFFF, head >> 28 & 3, head >> 30
    if not 1 <= n <= length:
        raise ArchiveError(f"a chunk of {length} elements claims {n} outliers")
    where = _decode_positions(reader, n, pos_form, length)
    values = _decode_values(reader, n, val_form, bits)
    reader.end()
    return where, values


def _decode_positions(reader: _Reader, n: int, form: int, length: int) -> _Positions:
    if form == _LIST:
        where = reader.halves(n)
    elif form == _BITMAP:
        bitmap = np.ascontiguousarray(reader.take(-(-length // 32)))
        where = np.flatnonzero(np.unpackbits(bitmap.view(np.uint8), bitorder="little")).astype(np.int64)
    elif form == _RUNS:
        count = reader.number()
        if not 1 <= count <= n:
            raise ArchiveError(f"{n} outliers cannot stand in {count} runs")
        runs = reader.take(count).astype(np.int64)
        lengths = (runs >> 16) + 1
        if int(lengths.sum()) != n:  # before anything of that size is made
            raise ArchiveError(f"the runs of outliers cover {int(lengths.sum())} elements, not {n}")
        where = np.repeat((runs & 0xFFFF) - np.cumsum(lengths) + lengths, lengths) + np.arange(n)
    else:
        raise ArchiveError(f"position form {form} of the outliers is unknown; this reader knows 0 to {_RUNS}")
    if where.size != n or where[-1] >= length or (np.diff(where) <= 0).any():
        raise ArchiveError(f"the positions of {n} outliers are not ascending within a chunk of {length} elements")
    return where


def _decode_values(reader: _Reader, n: int, form: int, bits: np.dtype[Any]) -> NDArray[Any]:
    if form == _EACH:
        return reader.values(n, bits)
    if form != _VALUE_RUNS:
        raise ArchiveError(f"value form {form} of the outliers is unknown; this reader knows 0 and {_VALUE_RUNS}")
    count = reader.number()
    if not 1 <= count <= n:
        raise ArchiveError(f"{n} values kept aside cannot be {count} runs")
    lengths = reader.halves(count) + 1
    if int(lengths.sum()) != n:
        raise ArchiveError(f"the runs of values kept aside hold {int(lengths.sum())} values, not {n}")
    return np.repeat(reader.values(count, bits), lengths)

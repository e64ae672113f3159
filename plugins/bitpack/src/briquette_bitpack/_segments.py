"""What the segment coders share: one byte of metadata a segment in front of each chunk, then the segments' words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType, Words

#: elements of a block, the unit of a segment
BLOCK = 32
MAX_SEGMENT = 1024

Index = NDArray[np.int64]
Bytes = NDArray[np.uint8]


def check_segment(stage: str, segment: object) -> None:
    """Raise `PipelineError` unless `segment` is a multiple of 32 from 32 to 1024."""
    if isinstance(segment, int) and not isinstance(segment, bool) and BLOCK <= segment <= MAX_SEGMENT and segment % BLOCK == 0:
        return
    raise PipelineError(f"segment = {segment!r} of stage {stage!r} must be a multiple of {BLOCK}, from {BLOCK} to {MAX_SEGMENT}")


def check_codes(stage: str, given: PortType) -> None:
    """Raise `PipelineError` unless the port is a stream of codes."""
    if not given.is_code:
        raise PipelineError(f"stage {stage!r} codes 16-, 32- or 64-bit integers, not {given}; put a quantizer before it")


def padded(codes: NDArray[Any], segment: int) -> NDArray[Any]:
    """Return the codes filled up with zeros to whole segments."""
    missing = -codes.size % segment
    return np.concatenate((codes, np.zeros(missing, codes.dtype))) if missing else np.ascontiguousarray(codes)


def bit_lengths(values: NDArray[Any], segment: int) -> Bytes:
    """Return the bit length of the bitwise or of each segment of unsigned `values` (whole segments)."""
    width = 8 * values.itemsize
    ored: NDArray[np.uint64] = values.view(np.uint64)
    while ored.size > values.size // BLOCK:  # neighbours pairwise: long passes, where a reduction over 32 would make short ones
        ored = ored[0::2] | ored[1::2]
    while width < 64:
        ored = ored | ored >> np.uint64(width)
        width *= 2
    ored = np.bitwise_or.reduce(ored.reshape(-1, segment // BLOCK), axis=1)
    return number_lengths(ored if values.itemsize == 8 else ored & np.uint64((1 << 8 * values.itemsize) - 1), values.itemsize)


def number_lengths(numbers: NDArray[np.uint64], itemsize: int) -> Bytes:
    """Return the bit length of each number, of `itemsize` bytes."""
    if itemsize == 8:  # float64 would round 2**54 - 1 up, so the halves are looked at apart
        high = _exponents(numbers >> np.uint64(32))
        return np.where(high > 0, high + 32, _exponents(numbers & np.uint64(0xFFFFFFFF))).astype(np.uint8)
    return _exponents(numbers).astype(np.uint8)


def _exponents(numbers: NDArray[np.uint64]) -> NDArray[Any]:
    return np.asarray(np.frexp(numbers.astype(np.float64))[1])


def rows(words: Words, length: int) -> NDArray[np.void]:
    """View contiguous `words` as its overlapping runs of `length` words, one starting at each word.

    Indexing the view with word offsets gathers or scatters whole segments with one copy each.
    """
    view: NDArray[np.void] = np.ndarray((max(0, words.size - length + 1),), f"V{4 * length}", words, 0, (4,))
    return view


def _geometry(count: int, chunk: int, segment: int) -> tuple[int, int, int]:
    """Return segments in the piece, segments of a whole chunk, and chunks."""
    if chunk % segment:
        raise PipelineError(f"a segment of {segment} elements does not divide the archive chunk of {chunk}")
    return -(-count // segment), chunk // segment, -(-count // chunk)


def _headers(segments: int, per_chunk: int, chunks: int) -> Index:
    """Return the words that the metadata of each chunk takes."""
    out = np.full(chunks, -(-per_chunk // 4), np.int64)
    if chunks:
        out[-1] = -(-(segments - (chunks - 1) * per_chunk) // 4)
    return out


def _offsets(lengths: Index, headers: Index, per_chunk: int) -> Index:
    """Return where each segment's words begin, given its length and its chunk's header, in words from the piece's start."""
    before = np.repeat(np.cumsum(headers), per_chunk)[: lengths.size]
    return np.cumsum(lengths) - lengths + before


def lay_out(meta: Bytes, lengths: Index, count: int, chunk: int, segment: int) -> tuple[Chunked, Index]:
    """Make the payload of a piece with its metadata in place and its segments' words still to be filled in.

    Parameters
    ----------
    meta : uint8 array, shape (segments,)
    lengths : int64 array, shape (segments,)
        Words of each segment.
    count, chunk, segment : int
        Elements.

    Returns
    -------
    value : Chunked
        Every word that is no metadata is uninitialized.
    offsets : int64 array, shape (segments,)
        Where each segment's words begin.
    """
    segments, per_chunk, chunks = _geometry(count, chunk, segment)
    if not chunks:
        return Chunked(np.empty(0, np.uint32), np.empty(0, np.uint32)), np.empty(0, np.int64)
    headers = _headers(segments, per_chunk, chunks)
    sizes = np.add.reduceat(lengths, np.arange(0, segments, per_chunk)) + headers
    words = np.empty(int(sizes.sum()), np.uint32)
    starts = np.cumsum(sizes) - sizes
    table = np.zeros((chunks, 4 * int(headers[0])), np.uint8)
    whole = segments // per_chunk
    if whole:  # else the only chunk is a short one, and so is the table
        table[:whole, :per_chunk] = meta[: whole * per_chunk].reshape(whole, per_chunk)
        rows(words, int(headers[0]))[starts[:whole]] = table.view(f"V{table.shape[1]}")[:whole, 0]
    if whole < chunks:
        table[whole, : segments - whole * per_chunk] = meta[whole * per_chunk :]
        words[starts[whole] : starts[whole] + headers[whole]] = table[whole].view(np.uint32)[: headers[whole]]
    return Chunked(sizes.astype(np.uint32), words), _offsets(lengths, headers, per_chunk)


def read_meta(value: Chunked, count: int, chunk: int, segment: int) -> Bytes:
    """Return the metadata bytes of a piece, shape (segments,).

    Raises
    ------
    ArchiveError
        If the sizes do not fit the words, or the padding after the bytes is not zero.
    """
    segments, per_chunk, chunks = _geometry(count, chunk, segment)
    total = int(value.sizes.sum(dtype=np.uint64))
    if value.sizes.size != chunks or total != value.words.size:
        raise ArchiveError(
            f"the coder's sizes are those of {value.sizes.size} chunks of {total} words; "
            f"there should be {chunks} chunks, and there are {value.words.size} words"
        )
    if not chunks:
        return np.empty(0, np.uint8)
    headers = _headers(segments, per_chunk, chunks)
    sizes = value.sizes.astype(np.int64)
    if (sizes < headers).any():
        c = int(np.argmax(sizes < headers))
        raise ArchiveError(f"chunk {c} of the coder has {sizes[c]} words, fewer than the {headers[c]} its segments' widths take")
    starts = np.cumsum(sizes) - sizes
    table = np.zeros((chunks, 4 * int(headers[0])), np.uint8)
    whole = segments // per_chunk
    words = np.ascontiguousarray(value.words)
    table.view(f"V{table.shape[1]}")[:whole, 0] = rows(words, int(headers[0]))[starts[:whole]]
    if whole < chunks:
        table[whole].view(np.uint32)[: headers[whole]] = words[starts[whole] : starts[whole] + headers[whole]]
    meta = table[:, :per_chunk].reshape(-1)
    if table[:, per_chunk:].any() or meta[segments:].any():
        raise ArchiveError("padding after the widths of a chunk's segments is not zero")
    return meta[:segments]


def check_widths(widths: Bytes, limit: int) -> None:
    """Raise `ArchiveError` where a segment's values would have more bits than its code type."""
    if int(widths.max(initial=0)) > limit:
        raise ArchiveError(f"a segment claims a width of {int(widths.max())} bits; for its code type there are at most {limit}")


def locate(value: Chunked, lengths: Index, count: int, chunk: int, segment: int) -> Index:
    """Return where each segment's words begin; raise `ArchiveError` unless `lengths` add up to every chunk's size."""
    segments, per_chunk, chunks = _geometry(count, chunk, segment)
    if not chunks:
        return np.empty(0, np.int64)
    headers = _headers(segments, per_chunk, chunks)
    sums = np.add.reduceat(lengths, np.arange(0, segments, per_chunk)) + headers
    if (sums != value.sizes).any():
        c = int(np.argmax(sums != value.sizes))
        raise ArchiveError(f"the widths of chunk {c} need {sums[c]} words, but it has {value.sizes[c]}")
    return _offsets(lengths, headers, per_chunk)


def per_block(widths: Bytes, offsets: Index, segment: int) -> tuple[Bytes, Index]:
    """Return widths and offsets of blocks of 32: a segment is its blocks' words one after another."""
    blocks = segment // BLOCK
    if blocks == 1:
        return widths, offsets
    inner = np.arange(blocks) * widths[:, None].astype(np.int64)
    return np.repeat(widths, blocks), (offsets[:, None] + inner).reshape(-1)


def fold(codes: NDArray[Any]) -> NDArray[Any]:
    """Return codes as unsigned, the signs of signed ones folded into the lowest bit."""
    if codes.dtype.kind == "u":
        return codes
    folded = codes << 1
    folded ^= codes >> (8 * codes.itemsize - 1)
    return folded.view(f"u{codes.itemsize}")


def unfold(values: NDArray[Any]) -> NDArray[Any]:
    """Undo `fold` in place, in a type of any width."""
    sign = (values & values.dtype.type(1)).view(f"i{values.itemsize}")
    np.negative(sign, out=sign)
    values >>= values.dtype.type(1)
    codes: NDArray[Any] = values.view(sign.dtype)
    codes ^= sign
    return codes

"""Tiles: the mode of every tile of a stream and the side values that come with it, as words and inside a coder's metadata.

A chunked port of tiles (`PortType.tiles`) holds, for each archive chunk, the modes of the chunk's tiles, `TileInfo.mode_bits`
bits each from the low end of the first word, zero bits to a whole word, then the side words of its tiles, tile after tile.

A coder that takes such a port as an optional input keeps the modes in the spare high bits of its segments' metadata instead
(`spread`, `collect`), and the side words in its payload before the words of each tile's first segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArchiveError, DeclarationError, PipelineError
from .ports import Chunked, PortType, TileInfo, Words

Modes = NDArray[np.uint8]
Index = NDArray[np.int64]


def tiles_of(count: int, info: TileInfo) -> int:
    """Return the tiles of `count` elements."""
    return -(-count // info.span)


def _per_chunk(count: int, chunk: int, info: TileInfo) -> Index:
    """Return the tiles of each chunk."""
    if chunk % info.span:
        raise PipelineError(f"a tile of {info.span} elements does not divide the archive chunk of {chunk}")
    chunks = -(-count // chunk)
    found = np.full(chunks, chunk // info.span, np.int64)
    if chunks:
        found[-1] = tiles_of(count - (chunks - 1) * chunk, info)
    return found


def side_lengths(modes: Modes, info: TileInfo) -> Index:
    """Return the side words of each tile."""
    return np.asarray(info.side_words, np.int64)[modes]


def max_words(info: TileInfo, elements: int) -> int:
    """Return the most words that a chunk of `elements` elements takes on a port of tiles."""
    tiles = tiles_of(elements, info)
    return -(-tiles * info.mode_bits // 32) + tiles * max(info.side_words)


# -- the port ------------------------------------------------------------------------------------------------


def pack(modes: Modes, side: Words, info: TileInfo, count: int, chunk: int) -> Chunked:
    """Return the value of a port of tiles.

    Parameters
    ----------
    modes : uint8 array, shape (tiles,)
    side : uint32 array
        The tiles' side words, one tile after another without gaps.
    info : TileInfo
    count, chunk : int
        Elements of the stream, or of a piece of whole chunks, and of a chunk.
    """
    tiles = _per_chunk(count, chunk, info)
    heads = -(-tiles * info.mode_bits // 32)
    lengths = side_lengths(modes, info)
    if modes.size != tiles.sum() or side.size != lengths.sum():
        raise DeclarationError(
            f"{modes.size} modes and {side.size} side words were given; {count} elements make {tiles.sum()} tiles of "
            f"{info.span}, whose modes come with {lengths.sum()} words"
        )
    if not tiles.size:
        return Chunked(np.empty(0, np.uint32), np.empty(0, np.uint32))
    sizes = heads + np.add.reduceat(lengths, np.cumsum(tiles) - tiles)
    words = np.empty(int(sizes.sum()), np.uint32)
    is_head = _heads(heads, sizes)
    words[is_head] = _pack_modes(modes, tiles, heads, info)
    words[~is_head] = side
    return Chunked(sizes.astype(np.uint32), words)


def unpack(value: object, info: TileInfo, count: int, chunk: int) -> tuple[Modes, Words]:
    """Return modes and side words from the value of a port of tiles; undoes `pack`.

    Raises
    ------
    ArchiveError
        For a mode that is not there, bits after a chunk's modes that are not zero, sizes that do not fit.
    """
    if not isinstance(value, Chunked):
        raise ArchiveError("a port of tiles was given a stream, not a chunked value")
    tiles = _per_chunk(count, chunk, info)
    heads = -(-tiles * info.mode_bits // 32)
    sizes = value.sizes.astype(np.int64)
    if sizes.size != tiles.size or sizes.sum() != value.words.size:
        raise ArchiveError(
            f"the sizes of the tiles are those of {sizes.size} chunks of {sizes.sum()} words; "
            f"there should be {tiles.size} chunks, and there are {value.words.size} words"
        )
    if not tiles.size:
        return np.empty(0, np.uint8), np.empty(0, np.uint32)
    if (sizes < heads).any():
        c = int(np.argmax(sizes < heads))
        raise ArchiveError(f"chunk {c} of the tiles has {sizes[c]} words, fewer than the {heads[c]} of its modes")
    is_head = _heads(heads, sizes)
    modes = _unpack_modes(value.words[is_head], tiles, heads, info)
    check_modes(modes, info)
    needs = heads + np.add.reduceat(side_lengths(modes, info), np.cumsum(tiles) - tiles)
    if (needs != sizes).any():
        c = int(np.argmax(needs != sizes))
        raise ArchiveError(f"the modes of chunk {c} of the tiles need {needs[c]} words, but it has {sizes[c]}")
    return modes, value.words[~is_head]


def check_modes(modes: NDArray[Any], info: TileInfo) -> None:
    """Raise `ArchiveError` where a tile claims a mode that is not there."""
    if int(modes.max(initial=0)) >= len(info.side_words):
        tile = int(np.argmax(modes >= len(info.side_words)))
        raise ArchiveError(f"tile {tile} claims mode {modes[tile]}; the modes are 0 to {len(info.side_words) - 1}")


def _heads(heads: Index, sizes: Index) -> NDArray[np.bool_]:
    """Return which words of all chunks hold modes."""
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return within < np.repeat(heads, sizes)


def _pack_modes(modes: Modes, tiles: Index, heads: Index, info: TileInfo) -> Words:
    bits = np.zeros((tiles.size, int(heads[0]) * 32), np.uint8)  # the first chunk has the most tiles
    each = np.unpackbits(modes[:, None], axis=1, bitorder="little")[:, : info.mode_bits].reshape(-1)
    bits[np.arange(bits.shape[1]) < tiles[:, None] * info.mode_bits] = each
    words: Words = np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32, copy=False)
    return words[np.arange(words.shape[1]) < heads[:, None]]


def _unpack_modes(words: Words, tiles: Index, heads: Index, info: TileInfo) -> Modes:
    table = np.zeros((tiles.size, int(heads[0])), "<u4")
    table[np.arange(table.shape[1]) < heads[:, None]] = words
    bits = np.unpackbits(table.view(np.uint8), axis=1, bitorder="little")
    used = np.arange(bits.shape[1]) < tiles[:, None] * info.mode_bits
    if bits[~used].any():
        raise ArchiveError("padding after the modes of a chunk's tiles is not zero")
    each = bits[used].reshape(-1, info.mode_bits)
    return np.packbits(each, axis=1, bitorder="little")[:, 0]


# -- inside a coder's metadata -------------------------------------------------------------------------------


def check_spare(stage: str, given: PortType, segment: int, spare: int) -> TileInfo:
    """Return what the port carries; raise `PipelineError` unless a coder of `segment` elements can keep the modes.

    Parameters
    ----------
    stage : str
        The coder's name, for messages.
    given : PortType
        Type of what feeds the coder's port of tiles.
    segment : int
    spare : int
        Spare bits of a segment's metadata.
    """
    info = given.tiles
    if info is None:
        raise PipelineError(f"stage {stage!r} takes modes and side values of tiles, not {given}; leave the port unconnected")
    if info.span % segment:
        raise PipelineError(
            f"stage {stage!r}: a segment of {segment} elements does not divide the tile of {info.span}; "
            f"choose another, or leave the port of tiles unconnected"
        )
    if info.span // segment * spare < info.mode_bits:
        raise PipelineError(
            f"stage {stage!r}: the {info.span // segment} segments of a tile have {spare} spare bits each, too few for the "
            f"{info.mode_bits} bits of a mode; take larger tiles, or leave the port of tiles unconnected"
        )
    return info


def room(elements: int, segment: int, spare: int) -> int:
    """Return how many modes (the lowest) the metadata of a tile of `elements` elements can hold."""
    bits: int = 1 << min(-(-elements // segment) * spare, 8)
    return bits


def spread(modes: Modes, info: TileInfo, count: int, segment: int, spare: int) -> NDArray[np.uint8]:
    """Return the spare bits of each segment's metadata, as numbers below ``2**spare``.

    Mode bit j of a tile is bit ``j % spare`` of the tile's segment ``j // spare``.

    Raises
    ------
    DeclarationError
        Where the segments of a stream's short last tile cannot hold its mode.
    """
    segments = -(-count // segment)
    out = np.zeros((modes.size, info.span // segment), np.uint8)
    for i in range(-(-info.mode_bits // spare)):
        out[:, i] = modes >> (i * spare) & ((1 << min(spare, 8)) - 1)
    found = out.reshape(-1)
    if found[segments:].any():
        raise DeclarationError(
            f"mode {modes[-1]} of the stream's last tile does not fit its segments' metadata (`Scope.mode_limit`)"
        )
    return found[:segments]


def collect(values: NDArray[Any], info: TileInfo, segment: int, spare: int) -> Modes:
    """Return the modes of the tiles from the spare bits of every segment; undoes `spread`.

    Raises
    ------
    ArchiveError
        For a mode that is not there, or spare bits that hold none and are not zero.
    """
    per = info.span // segment
    tiles = -(-values.size // per)
    table = np.zeros((tiles, per), np.int64)
    table.reshape(-1)[: values.size] = values
    used = -(-info.mode_bits // spare)
    if table[:, used:].any():
        raise ArchiveError("spare bits of a segment that holds no part of its tile's mode are not zero")
    modes = np.zeros(tiles, np.int64)
    for i in range(used):
        modes |= table[:, i] << (i * spare)
    check_modes(modes, info)
    return modes.astype(np.uint8)


def side_offsets(firsts: Index, modes: Modes, info: TileInfo) -> Index:
    """Return the place of each side word of all tiles, given where each tile's side words begin."""
    lengths = side_lengths(modes, info)
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(firsts, lengths) + within

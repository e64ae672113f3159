"""What the segment coders share of a selector's tiles: modes in spare bits of the metadata, side words in the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from briquette import tiles
from briquette.ports import Chunked, PortType, PortValue, TileInfo, Words
from briquette.stage import Scope

from ._segments import Bytes, Index, check_widths, lay_out, locate, read_meta

#: the optional input of both coders
PORT = "tiles"


def spare_bits(dtype: str) -> int:
    """Return the high bits of a byte that holds 0 to as many bits as a code of `dtype` has: 3, 2 or 1."""
    return 8 - (8 * np.dtype(dtype).itemsize).bit_length()


def check(stage: str, inputs: Mapping[str, PortType], segment: int) -> None:
    """Raise `PipelineError` where the port of tiles is connected to something whose modes have no room."""
    if PORT in inputs:
        tiles.check_spare(stage, inputs[PORT], segment, spare_bits(inputs["in"].dtype))


def max_words(types: Mapping[str, PortType], chunk: int) -> int:
    """Return the most side words in a chunk's payload."""
    info = types[PORT].tiles if PORT in types else None
    return 0 if info is None else tiles.tiles_of(chunk, info) * max(info.side_words)


class Payload(NamedTuple):
    """A piece's payload taken apart: each segment's width, and where its words begin; the value of the port of tiles."""

    widths: Bytes
    offsets: Index
    tiles: Chunked | None


def write(widths: Bytes, lengths: Index, inputs: Mapping[str, PortValue], scope: Scope, segment: int) -> tuple[Chunked, Index]:
    """Return the payload without the segments' words, and where those begin (see `lay_out`)."""
    info = scope.types[PORT].tiles if PORT in scope.types else None
    if info is None:
        return lay_out(widths, lengths, scope.count, scope.chunk, segment)
    spare = spare_bits(scope.types["in"].dtype)
    modes, side = tiles.unpack(inputs[PORT], info, scope.count, scope.chunk)
    meta = widths | tiles.spread(modes, info, scope.count, segment, spare) << np.uint8(8 - spare)
    before = _before(modes, info, widths.size, segment)
    value, offsets = lay_out(meta, lengths + before, scope.count, scope.chunk, segment)
    value.words[tiles.side_offsets(offsets[:: info.span // segment], modes, info)] = side
    return value, offsets + before


def read(value: Chunked, lengths_of: Any, scope: Scope, segment: int, most: int | None = None) -> Payload:
    """Take a payload apart; `lengths_of` gives the words of segments from their widths, which are `most` at most.

    By default that is the bits of a code.

    Raises
    ------
    ArchiveError
        If it is no payload of a coder with such segments.
    """
    dtype = scope.types["in"].dtype
    info = scope.types[PORT].tiles if PORT in scope.types else None
    meta = read_meta(value, scope.count, scope.chunk, segment)
    limit = 8 * np.dtype(dtype).itemsize if most is None else most
    if info is None:
        check_widths(meta, limit)
        return Payload(meta, locate(value, lengths_of(meta), scope.count, scope.chunk, segment), None)
    spare = spare_bits(dtype)
    widths = meta & np.uint8((1 << 8 - spare) - 1)
    check_widths(widths, limit)
    modes = tiles.collect(meta >> np.uint8(8 - spare), info, segment, spare)
    before = _before(modes, info, meta.size, segment)
    offsets = locate(value, lengths_of(widths) + before, scope.count, scope.chunk, segment)
    side: Words = value.words[tiles.side_offsets(offsets[:: info.span // segment], modes, info)]
    return Payload(widths, offsets + before, tiles.pack(modes, side, info, scope.count, scope.chunk))


def _before(modes: NDArray[np.uint8], info: TileInfo, segments: int, segment: int) -> Index:
    """Return the side words that stand before each segment's words: a tile's before its first segment."""
    before = np.zeros(segments, np.int64)
    before[:: info.span // segment] = tiles.side_lengths(modes, info)
    return before


def given_back(codes: NDArray[Any], payload: Payload) -> Mapping[str, PortValue]:
    """Return what a coder's inverse gives back."""
    return {"in": codes} if payload.tiles is None else {"in": codes, PORT: payload.tiles}

"""The adaptive Lorenzo predictor: for each tile the order, and centring or none, that the coder behind it makes least of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette import tiles
from briquette.declare import MAX_SPAN, FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue, TileInfo, Words
from briquette.stage import Scope, Stage

#: bits of a mode: second order, and centred on the tile's mean
SECOND: Final = 1
CENTRED: Final = 2
MODES: Final = 4


@dataclass(frozen=True)
class AdaptiveLorenzo(Stage):
    """Predict each code by its predecessor or linearly by two, with or without the tile's mean taken off first.

    Each tile takes the cheapest of four modes, by the exact words that the stages behind it would make, the mean's included;
    the lowest of equals. Tiles never see one another. All differences are modulo 2**bits of the code type, which makes the
    stage lossless for every input.

    ==== ================================================================
    mode deltas of the codes q (m: the floor of the tile's mean)
    ==== ================================================================
    0    ``q[i] - q[i-1]``
    1    ``q[i] - 2 q[i-1] + q[i-2]``
    2    as 0, of ``q - m``
    3    as 1, of ``q - m``
    ==== ================================================================

    What lies before a tile counts as 0. The side port ``tiles`` carries modes and means: a coder with an input of that name
    keeps them in its payload, else they are a segment of the archive.

    Parameters
    ----------
    tile : int, optional
        Elements that share a mode: a multiple of 32 from 32 to 65,536; 256 by default. A whole number of the coder's segments.

    Raises
    ------
    PipelineError
        If `tile` is anything else.

    Notes
    -----
    The choice of first or second order and centring for each block by its coded size is that of FSZ. The predictors are those
    of Ibarria et al. (2003) and, of second order, of SZ's curve fitting (Di and Cappello, 2016).
    """

    tile: int = 256

    name: ClassVar[str] = "adaptive-lorenzo"
    outputs: ClassVar[tuple[str, ...]] = ("out", "tiles")

    def __post_init__(self) -> None:
        tile = self.tile
        if isinstance(tile, bool) or not isinstance(tile, int) or not 32 <= tile <= MAX_SPAN or tile % 32:
            raise PipelineError(
                f"tile = {tile!r} of stage 'adaptive-lorenzo' must be an integer, a multiple of 32 from 32 to {MAX_SPAN}"
            )

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type and the port of tiles; raise `PipelineError` for anything but a stream of codes."""
        given = inputs["in"]
        if not given.is_code:
            raise PipelineError(f"stage 'adaptive-lorenzo' takes 16-, 32- or 64-bit integer codes, not {given}; quantize first")
        return {"out": given, "tiles": PortType(given.dtype, "chunked", self._info(given.numpy))}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of the modes and means of a chunk whose every tile is centred."""
        return tiles.max_words(self._info(types["in"].numpy), chunk)

    def _info(self, dtype: np.dtype[Any]) -> TileInfo:
        words = max(1, dtype.itemsize // 4)
        return TileInfo(self.tile, (0, 0, words, words))

    # -- forward -------------------------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into deltas ``out`` of the same shape and type and the chunked ``tiles``."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        info = self._info(codes.dtype)
        rows = self._rows(codes)
        first = _difference(rows)
        second = _difference(first)
        means = self._means(codes)
        modes = self._choose(codes, first, second, means, scope, info)
        centred = modes & CENTRED != 0
        out = first
        twice = np.flatnonzero(modes & SECOND)
        out[twice] = second[twice]
        _centre(out, np.where(centred, means, means.dtype.type(0)), modes & SECOND != 0)
        side = _to_words(means[centred].view(codes.dtype))
        deltas: NDArray[Any] = out.reshape(-1)[: codes.size].view(codes.dtype)
        return {"out": deltas, "tiles": tiles.pack(modes, side, info, scope.count, scope.chunk)}

    def _choose(
        self,
        codes: NDArray[Any],
        first: NDArray[Any],
        second: NDArray[Any],
        means: NDArray[Any],
        scope: Scope,
        info: TileInfo,
    ) -> NDArray[np.uint8]:
        """Return each tile's mode, given the deltas of modes 0 and 1."""
        count, segment = codes.size, scope.tail_segment
        if not count:
            return np.empty(0, np.uint8)
        costs = np.empty((MODES, means.size), np.int64)
        head = -(-2 // segment) * segment  # centring changes a tile's first two deltas: only their segments are asked again
        starts = np.arange(0, count, self.tile)
        heads = (means.size - 1) * head + min(head, count - int(starts[-1]))
        for mode, rows in ((0, first), (SECOND, second)):
            plain = scope.tail_cost(rows.reshape(-1)[:count].view(codes.dtype))
            costs[mode] = np.add.reduceat(plain, starts // segment)
            changed = rows[:, :head].copy()
            _centre(changed, means, np.full(means.size, mode == SECOND))
            centred = scope.tail_cost(changed.reshape(-1)[:heads].view(codes.dtype))
            asked = np.arange(0, centred.size, head // segment)
            before = np.add.reduceat(plain[self._head_segments(head // segment, segment, centred.size)], asked)
            costs[mode | CENTRED] = costs[mode] - before + np.add.reduceat(centred, asked) + info.side_words[CENTRED]
        limit = scope.mode_limit(count - int(starts[-1]), MODES)
        costs[limit:, -1] = np.iinfo(np.int64).max
        return np.argmin(costs, axis=0).astype(np.uint8)

    def _head_segments(self, each: int, segment: int, total: int) -> NDArray[np.int64]:
        """Return the indices, in the whole stream, of the first `each` segments of every tile, `total` in all."""
        at = np.arange(total)
        return at // each * (self.tile // segment) + at % each

    def _means(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the floor of each tile's sum (modulo 2**64, as int64) over its count, modulo 2**bits."""
        if not codes.size:
            return np.empty(0, f"u{codes.itemsize}")
        whole = codes.size // self.tile
        sums = codes[: whole * self.tile].reshape(-1, self.tile).astype(np.int64, copy=False).sum(axis=1, dtype=np.int64)
        means = sums // self.tile
        rest = codes[whole * self.tile :]
        if rest.size:
            means = np.append(means, rest.astype(np.int64, copy=False).sum(dtype=np.int64) // rest.size)
        return means.astype(f"u{codes.itemsize}")

    # -- inverse -------------------------------------------------------------------------------------------

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn deltas ``out`` back into codes ``in``; raise `ArchiveError` for ``tiles`` that no forward pass has written."""
        deltas: NDArray[Any] = np.asarray(outputs["out"])
        modes, side = tiles.unpack(outputs["tiles"], self._info(deltas.dtype), scope.count, scope.chunk)
        rows = self._rows(deltas)
        rows = np.cumsum(rows, axis=1, dtype=rows.dtype)
        twice = np.flatnonzero(modes & SECOND)
        rows[twice] = np.cumsum(rows[twice], axis=1, dtype=rows.dtype)
        centred = np.flatnonzero(modes & CENTRED)
        rows[centred] += _from_words(side, deltas.dtype)[:, None].view(rows.dtype)
        codes: NDArray[Any] = rows.reshape(-1)[: deltas.size].view(deltas.dtype)
        return {"in": codes}

    def _rows(self, stream: NDArray[Any]) -> NDArray[Any]:
        """Return a stream as unsigned (arithmetic modulo 2**bits), one tile a row, the last one filled up with zeros."""
        missing = -stream.size % self.tile
        whole = np.concatenate((stream, np.zeros(missing, stream.dtype))) if missing else np.ascontiguousarray(stream)
        return whole.view(f"u{stream.itemsize}").reshape(-1, self.tile)

    # -- fusion --------------------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """TILE_SELECTOR over `tile`."""
        return FusionSpec(FusionAccess.TILE_SELECTOR, self.tile)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``AdaptiveLorenzo``."""
        return FusedOp("warp-register", "AdaptiveLorenzo", "briquette_lorenzo/cuda/adaptive.cuh")

    def fused_aux_outputs(self) -> tuple[str, ...]:
        """Modes and means leave the group where its coder does not keep them."""
        return ("tiles",)


def _difference(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the differences along each row, its first element's from 0."""
    out = np.empty_like(rows)
    np.subtract(rows.reshape(-1)[1:], rows.reshape(-1)[:-1], out=out.reshape(-1)[1:])
    out[:, :1] = rows[:, :1]
    return out


def _centre(rows: NDArray[Any], means: NDArray[Any], second: NDArray[np.bool_]) -> None:
    """Turn deltas of codes into those of codes less their row's mean: the first, and of second order the one after it."""
    rows[:, 0] -= means
    rows[:, 1] += np.where(second, means, means.dtype.type(0))


def _to_words(means: NDArray[Any]) -> Words:
    """Return numbers as 32-bit words: 16-bit ones extended by their sign, if any, 64-bit ones low word first."""
    if means.itemsize < 4:
        means = means.astype("i4" if means.dtype.kind == "i" else "u4")
    words: Words = means.astype(means.dtype.newbyteorder("<"), copy=False).view("<u4").astype(np.uint32, copy=False)
    return words


def _from_words(words: Words, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo `_to_words`; of a 16-bit number's word the low half counts."""
    if dtype.itemsize < 4:
        return words.astype("u2").view(dtype)
    return np.ascontiguousarray(words).astype("<u4", copy=False).view(dtype.newbyteorder("<")).astype(dtype, copy=False)

"""A selector: each tile of codes takes the representation that the coder behind it makes least of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from briquette import tiles
from briquette.declare import MAX_SPAN, FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue, TileInfo
from briquette.stage import Scope, Stage
from numpy.typing import NDArray


@dataclass(frozen=True)
class MyPack(Stage):
    """Leave the codes of a tile as they are, or take its first code off each, whichever is cheaper. FILL IN.

    The side port ``tiles`` carries each tile's mode (0: as they are, 1: less the first code) and, of mode 1, that code; a coder
    with an input of this name keeps them in its payload, else they are a segment of the archive.

    Parameters
    ----------
    tile : int, optional
        Elements that share a mode, a multiple of 32 up to 65,536; 256 by default. A whole number of the coder's segments.

    Raises
    ------
    PipelineError
        If `tile` is anything else.
    """

    tile: int = 256

    name: ClassVar[str] = "my-pack"
    outputs: ClassVar[tuple[str, ...]] = ("out", "tiles")

    def __post_init__(self) -> None:
        tile = self.tile
        if isinstance(tile, bool) or not isinstance(tile, int) or not 32 <= tile <= MAX_SPAN or tile % 32:
            raise PipelineError(f"tile = {tile!r} of stage {self.name!r} must be a multiple of 32 from 32 to {MAX_SPAN}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type and the port of tiles; raise `PipelineError` for anything but 32- or 64-bit codes."""
        given = inputs["in"]
        if not given.is_code or given.itemsize < 4:
            raise PipelineError(f"stage {self.name!r} takes 32- or 64-bit integer codes, not {given}; quantize first")
        return {"out": given, "tiles": PortType(given.dtype, "chunked", self._info(given))}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the most words that a chunk of the port of tiles takes."""
        return tiles.max_words(self._info(types["in"]), chunk)

    def _info(self, given: PortType) -> TileInfo:
        """Return the modes: the words of side values that each comes with. FILL IN."""
        return TileInfo(self.tile, (0, given.itemsize // 4))

    # -- the NumPy form: the oracle ------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into ``out`` of the same shape and type and the chunked ``tiles``."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        info = self._info(scope.types["in"])
        plain = self._rows(codes)
        based = plain - plain[:, :1]  # FILL IN: the modes
        modes = self._choose(plain, based, scope, info)
        out = np.where(modes[:, None] == 1, based, plain)
        side = np.ascontiguousarray(plain[modes == 1, 0]).astype(plain.dtype.newbyteorder("<")).view("<u4").astype(np.uint32)
        return {"out": self._stream(out, scope), "tiles": tiles.pack(modes, side, info, scope.count, scope.chunk)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the codes ``in`` back; raise `ArchiveError` for ``tiles`` that no forward pass has written."""
        rows = self._rows(np.asarray(outputs["out"]))
        modes, side = tiles.unpack(outputs["tiles"], self._info(scope.types["in"]), scope.count, scope.chunk)
        rows[modes == 1] += side.astype("<u4").view(rows.dtype.newbyteorder("<")).astype(rows.dtype)[:, None]
        return {"in": self._stream(rows, scope)}

    def _choose(self, plain: NDArray[Any], based: NDArray[Any], scope: Scope, info: TileInfo) -> NDArray[np.uint8]:
        """Return each tile's mode: the cheapest by the exact words of the stages behind, the lowest of equals."""
        if not scope.count:
            return np.empty(0, np.uint8)
        starts = np.arange(0, scope.count, self.tile)
        costs = np.stack(
            [
                words + np.add.reduceat(scope.tail_cost(self._stream(rows, scope)), starts // scope.tail_segment)
                for rows, words in zip((plain, based), info.side_words, strict=True)
            ]
        )
        costs[scope.mode_limit(scope.count - int(starts[-1]), len(costs)) :, -1] = np.iinfo(np.int64).max
        return np.asarray(costs.argmin(axis=0), np.uint8)

    def _rows(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return a stream as unsigned (arithmetic modulo 2**bits), one tile a row, the last one filled up with zeros."""
        return np.pad(codes, (0, -codes.size % self.tile)).view(f"u{codes.itemsize}").reshape(-1, self.tile)

    def _stream(self, rows: NDArray[Any], scope: Scope) -> NDArray[Any]:
        return rows.reshape(-1)[: scope.count].view(scope.types["in"].numpy)

    # -- what lets it fuse ---------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """TILE_SELECTOR over `tile`."""
        return FusionSpec(FusionAccess.TILE_SELECTOR, self.tile)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``MyPack``."""
        return FusedOp("warp-register", "MyPack", "my_pack/cuda/stage.cuh")

    def fused_aux_outputs(self) -> tuple[str, ...]:
        """Modes and side values leave the group where its coder does not keep them."""
        return ("tiles",)

"""The Lorenzo predictor of one, two or three dimensions within tiles of 64 codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage

from ._tiles import EDGES, TILE, check_axes, tile_axes

_PARAMS = ParamStruct((("axes", "uint32"),))


@dataclass(frozen=True)
class TiledLorenzo(Stage):
    """Predict each code of a tile by its neighbours in the tile, along all of its axes; what lies outside counts as 0.

    Which is: take differences along the last axis, then of these along the axis before, and so on. Tiles are 64 codes that
    stand one after another, as ``tile-order`` leaves them: 8 x 8 of two axes, 4 x 4 x 4 of three, 64 of one. Differences are
    modulo 2**bits of the code type, which makes the stage lossless for every input.

    Parameters
    ----------
    axes : int, optional
        Axes of a tile: 1, 2 or 3; 0, the default, for as many as the array has, at most 3; as for ``tile-order``.

    Raises
    ------
    PipelineError
        If `axes` is anything else.

    Notes
    -----
    The predictor is that of Ibarria, Lindstrom, Rossignac and Szymczak (2003) on quantization codes, as in cuSZ (Tian et al.,
    2020); its restart in tiles of these shapes is that of cuSZp3 (Huang et al., SC'25).
    """

    axes: int = 0

    name: ClassVar[str] = "tiled-lorenzo"
    reads_shape: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_axes(self.name, self.axes)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(
                f"stage 'tiled-lorenzo' takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first"
            )
        return {"out": inputs["in"]}

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve the number of a tile's axes from the array's shape."""
        return {"axes": tile_axes(ctx.shape, self.axes)}

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the number of a tile's axes."""
        return {"axes": _resolved(state)}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into differences ``out`` of the same shape and type."""
        tiles = _tiles(inputs["in"], _resolved(scope.state))
        for axis in range(1, tiles.ndim):
            tiles = np.diff(tiles, axis=axis, prepend=tiles.dtype.type(0))
        return {"out": _stream(tiles, scope)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn differences ``out`` back into codes ``in``."""
        tiles = _tiles(outputs["out"], _resolved(scope.state))
        for axis in range(1, tiles.ndim):
            tiles = np.cumsum(tiles, axis=axis, dtype=tiles.dtype)
        return {"in": _stream(tiles, scope)}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over a tile."""
        return FusionSpec(FusionAccess.REGION_LOCAL, TILE)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``TiledLorenzo``."""
        return FusedOp("warp-register", "TiledLorenzo", "briquette_lorenzo/cuda/tiled.cuh", _PARAMS)


def _resolved(state: Mapping[str, Scalar]) -> int:
    axes = state.get("axes")
    if isinstance(axes, bool) or not isinstance(axes, int) or axes not in EDGES:
        raise ArchiveError(f"the state of stage 'tiled-lorenzo' holds axes = {axes!r}, which is not 1, 2 or 3")
    return axes


def _tiles(stream: PortValue, axes: int) -> NDArray[Any]:
    """Return codes as unsigned, whose arithmetic is modulo 2**bits, one tile after another, the last one filled up."""
    codes: NDArray[Any] = np.asarray(stream)
    whole = np.pad(codes, (0, -codes.size % TILE)).view(f"u{codes.itemsize}")
    return whole.reshape(-1, *(1 << edge for edge in EDGES[axes] if edge))


def _stream(tiles: NDArray[Any], scope: Scope) -> NDArray[Any]:
    return tiles.reshape(-1)[: scope.count].view(scope.types["in"].numpy)

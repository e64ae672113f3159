"""The order of tiles: codes gathered into 8 x 8 or 4 x 4 x 4 tiles, so that what follows sees neighbours along every axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.params import ParamStruct
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage

from ._tiles import TILE, TileLayout, check_axes, tile_axes

_PARAMS = ParamStruct(
    tuple((f"{name}{at}", "uint64") for name in ("length", "tiles") for at in range(3))
    + tuple((f"edge{at}", "uint32") for at in range(3)),
)


@dataclass(frozen=True)
class TileOrder(Stage):
    """Turn a stream of codes in C order into one tile after another: 8 x 8 of two axes, 4 x 4 x 4 of three, 64 of one.

    The last axes are tiled, those before them are a batch, and axes of length 1 do not count. A tile that reaches over an edge
    repeats the last code along that axis. The stage itself predicts nothing; ``tiled-lorenzo`` goes with it.

    Parameters
    ----------
    axes : int, optional
        Axes of a tile: 1, 2 or 3; 0, the default, for as many as the array has, at most 3. An array with fewer axes has tiles
        of so many.

    Raises
    ------
    PipelineError
        If `axes` is anything else.

    Notes
    -----
    Tiles of the same shapes are those in which cuSZp3 predicts in two and three dimensions (Huang et al., SC'25); its layout
    and format are its own.
    """

    axes: int = 0

    name: ClassVar[str] = "tile-order"
    reads_shape: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_axes(self.name, self.axes)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'tile-order' takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first")
        return {"out": inputs["in"]}

    def layout(self, shape: tuple[int, ...]) -> TileLayout:
        """Return the tiles of an array of `shape`."""
        return TileLayout(shape, tile_axes(shape, self.axes))

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Lay codes ``in``, shape (count,), out as ``out``, of as many elements as the tiles have."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        return {"out": self.layout(scope.shape).gather(codes) if codes.size else codes}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Give back the codes ``in`` of the stretch at hand from the tiles ``out`` that hold them."""
        laid: NDArray[Any] = np.asarray(outputs["out"])
        if not laid.size:
            return {"in": laid}
        of, tiles = scope.laid, self.layout(scope.shape)
        if of.whole:
            return {"in": tiles.scatter(laid)}
        place, own = tiles.places(of.laid_begin, of.laid_end)
        own &= (place >= of.begin) & (place < of.end)
        codes = np.empty(scope.count, laid.dtype)
        codes[place[own] - of.begin] = laid[own]
        return {"in": codes}

    def fusion_spec(self) -> FusionSpec:
        """LAYOUT over a tile."""
        return FusionSpec(FusionAccess.LAYOUT, TILE)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``TileOrder``."""
        return FusedOp("warp-register", "TileOrder", "briquette_lorenzo/cuda/tile_order.cuh", _PARAMS)

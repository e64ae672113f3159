"""A first-order predictor that quantizes inline, as warp-register predictors of plain CUDA do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.params import ParamStruct, Scalar
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage

from .blocks import blocks, check_codes, check_elements, stream

#: `inv2eb` comes first: briquette writes the inverse of the quantizer's step there
_PARAMS: Final = ParamStruct((("inv2eb", "float32"), ("elems_per_lane", "uint32")), policy_struct="Params")


@dataclass(frozen=True)
class WarpDifference(Stage):
    """Predict each code by its predecessor; a block's first code is predicted by 0.

    Parameters
    ----------
    elems_per_lane : int, optional
        Elements of a block, in 32; a power of two up to 32, 8 by default.

    Raises
    ------
    PipelineError
        If `elems_per_lane` is anything else.
    """

    elems_per_lane: int = 8

    name: ClassVar[str] = "warp-difference"

    def __post_init__(self) -> None:
        check_elements(self.name, self.elems_per_lane)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of int32 codes."""
        check_codes(self.name, inputs["in"])
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into differences ``out``."""
        rows = blocks(inputs["in"], 32 * self.elems_per_lane)
        return {"out": stream(np.diff(rows, axis=1, prepend=np.uint32(0)), scope.count)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn differences ``out`` back into codes ``in``."""
        rows = blocks(outputs["out"], 32 * self.elems_per_lane)
        return {"in": stream(np.cumsum(rows, axis=1, dtype=np.uint32), scope.count)}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over a block."""
        return FusionSpec(FusionAccess.REGION_LOCAL, 32 * self.elems_per_lane)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``WarpDifference``, in the element form."""
        geometry = {"element_form": 1, "elems_per_lane": self.elems_per_lane}
        return FusedOp("warp-register", "WarpDifference", "acme_warp/cuda/difference.cuh", _PARAMS, geometry)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the policy's parameters; what stands in ``inv2eb`` is written over."""
        return {"inv2eb": 0.0, "elems_per_lane": self.elems_per_lane}

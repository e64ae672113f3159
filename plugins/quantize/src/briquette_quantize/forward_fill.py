"""Forward fill: marked codes become the code before them, so that holes cost predictors nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import MAX_SPAN, FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class ForwardFill(Stage):
    """Replace marked codes by the last one before them in the region; at a region's start by the first one after, else by 0.

    The mark is the lowest code of the type, which the masked quantizers give what they keep aside and nothing else. So a
    hole continues its left edge, and differences in it are 0; a region that is all hole is all 0. Decompression leaves
    codes as they are: what was marked comes back through the quantizer's outliers.

    Parameters
    ----------
    region : int, optional
        Elements after which the fill starts anew, 1 to 65,536; 256 by default. Best that of the predictor behind it.

    Raises
    ------
    PipelineError
        If `region` is not an integer in that range.
    """

    region: int = 256

    name: ClassVar[str] = "forward-fill"

    def __post_init__(self) -> None:
        if isinstance(self.region, bool) or not isinstance(self.region, int) or not 1 <= self.region <= MAX_SPAN:
            raise PipelineError(f"region = {self.region!r} of stage {self.name!r} must be an integer from 1 to {MAX_SPAN}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of signed codes."""
        if not inputs["in"].is_code or inputs["in"].numpy.kind != "i":
            raise PipelineError(f"stage {self.name!r} takes signed 16-, 32- or 64-bit codes, not {inputs['in']}")
        return {"out": inputs["in"]}

    def replaced_code(self, dtype: str) -> int:
        """The mark: what it stood for comes back through the quantizer's outliers."""
        return int(np.iinfo(dtype).min)

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Fill codes ``in``, shape (count,), to ``out`` of the same shape and type."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        there = codes != np.iinfo(codes.dtype).min
        if there.all():
            return {"out": codes.copy()}
        # what lies beyond the stream's end counts as code 0
        rows = (-1, self.region)
        c = np.pad(codes, (0, -codes.size % self.region)).reshape(rows)
        given = np.pad(there, (0, -codes.size % self.region), constant_values=True).reshape(rows)
        at = np.maximum.accumulate(np.where(given, np.arange(self.region), -1), axis=1)
        at = np.where(at < 0, given.argmax(axis=1)[:, None], at)
        out = np.take_along_axis(c, at, axis=1)
        out[~given.any(axis=1)] = 0
        return {"out": out.reshape(-1)[: codes.size]}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Return the codes as they are."""
        return {"in": outputs["out"]}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `region`."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.region)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``ForwardFill``."""
        return FusedOp("warp-register", "ForwardFill", "briquette_quantize/cuda/forward_fill.cuh")

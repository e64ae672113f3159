"""The second-order predictor: each code's distance from the line through the two before it."""

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
class Difference2(Stage):
    """Predict each code as twice its predecessor less the one before that; codes before a region's start count as 0.

    Parameters
    ----------
    region : int, optional
        Elements after which the prediction starts anew, 1 to 65,536; 128 by default.

    Raises
    ------
    PipelineError
        If `region` is not an integer in that range.
    """

    region: int = 128

    name: ClassVar[str] = "difference2"

    def __post_init__(self) -> None:
        if isinstance(self.region, bool) or not isinstance(self.region, int) or not 1 <= self.region <= MAX_SPAN:
            raise PipelineError(f"region = {self.region!r} of stage 'difference2' must be an integer from 1 to {MAX_SPAN}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'difference2' takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into second differences ``out`` of the same shape and type."""
        rows = self._regions(inputs["in"])
        before = np.zeros((len(rows), 2), rows.dtype)
        return {"out": self._stream(np.diff(rows, 2, axis=1, prepend=before), scope)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn second differences ``out`` back into codes ``in``."""
        rows = self._regions(outputs["out"])
        for _ in range(2):
            rows = np.cumsum(rows, axis=1, dtype=rows.dtype)
        return {"in": self._stream(rows, scope)}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `region`."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.region)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``Difference2``."""
        return FusedOp("warp-register", "Difference2", "acme_difference2/cuda/difference2.cuh")

    def _regions(self, stream: PortValue) -> NDArray[Any]:
        """Return a stream as unsigned (arithmetic modulo 2**bits), one region a row, the last one filled up with zeros."""
        codes: NDArray[Any] = np.asarray(stream)
        return np.pad(codes, (0, -codes.size % self.region)).view(f"u{codes.itemsize}").reshape(-1, self.region)

    def _stream(self, rows: NDArray[Any], scope: Scope) -> NDArray[Any]:
        return rows.reshape(-1)[: scope.count].view(scope.types["in"].numpy)

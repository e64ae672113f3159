"""A predictor: each code becomes its distance from what the codes before it in its region let expect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from briquette.declare import MAX_SPAN, FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage
from numpy.typing import NDArray


@dataclass(frozen=True)
class MyPack(Stage):
    """Predict each code by its predecessor; what lies before a region counts as 0. FILL IN.

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

    name: ClassVar[str] = "my-pack"

    def __post_init__(self) -> None:
        if isinstance(self.region, bool) or not isinstance(self.region, int) or not 1 <= self.region <= MAX_SPAN:
            raise PipelineError(f"region = {self.region!r} of stage {self.name!r} must be an integer from 1 to {MAX_SPAN}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage {self.name!r} takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first")
        return {"out": inputs["in"]}

    # -- the NumPy form: the oracle ------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into residuals ``out`` of the same shape and type."""
        rows = self._regions(inputs["in"])
        rows = np.diff(rows, axis=1, prepend=rows.dtype.type(0))  # FILL IN: the prediction, modulo 2**bits
        return {"out": self._stream(rows, scope)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn residuals ``out`` back into codes ``in``."""
        rows = self._regions(outputs["out"])
        rows = np.cumsum(rows, axis=1, dtype=rows.dtype)  # FILL IN: undo it exactly, for every input
        return {"in": self._stream(rows, scope)}

    def _regions(self, stream: PortValue) -> NDArray[Any]:
        """Return a stream as unsigned (arithmetic modulo 2**bits), one region a row, the last one filled up with zeros."""
        codes: NDArray[Any] = np.asarray(stream)
        return np.pad(codes, (0, -codes.size % self.region)).view(f"u{codes.itemsize}").reshape(-1, self.region)

    def _stream(self, rows: NDArray[Any], scope: Scope) -> NDArray[Any]:
        return rows.reshape(-1)[: scope.count].view(scope.types["in"].numpy)

    # -- what lets it fuse ---------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `region`: no element depends on anything beyond its region."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.region)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``MyPack``."""
        return FusedOp("warp-register", "MyPack", "my_pack/cuda/stage.cuh")

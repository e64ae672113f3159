"""The N-D Lorenzo predictor over a whole field: differences along every axis."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class LorenzoND(Stage):
    """Predict each code by all its neighbours before it, along the last `axes` axes of the array; what lies outside counts as 0.

    Which is: take differences along the last axis, then of these along the axis before, and so on. Differences are modulo
    2**bits of the code type, which makes the stage lossless for every input. A code depends on all before it in the field, so
    the stage is a barrier: it runs as NumPy, and no part of an archive can be decoded by itself.

    Parameters
    ----------
    axes : int, optional
        How many of the array's axes count, 1 to 64; 0, the default, for all. What is before them is a batch.

    Raises
    ------
    PipelineError
        If `axes` is anything else; if the stage stands behind one that gives codes another order.

    Notes
    -----
    The predictor is that of Ibarria, Lindstrom, Rossignac and Szymczak (Out-of-core compression and decompression of large
    n-dimensional scalar fields, 2003), on quantization codes as in cuSZ (Tian et al., 2020).
    """

    axes: int = 0

    name: ClassVar[str] = "lorenzo-nd"
    reads_shape: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.axes, bool) or not isinstance(self.axes, int) or not 0 <= self.axes <= 64:
            raise PipelineError(f"axes = {self.axes!r} of stage 'lorenzo-nd' must be an integer from 1 to 64, or 0 for all")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'lorenzo-nd' takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into differences ``out`` of the same shape and type."""
        field = self._field(inputs["in"], scope)
        for axis in range(1, field.ndim):
            field = np.diff(field, axis=axis, prepend=field.dtype.type(0))
        return {"out": field.reshape(-1).view(scope.types["out"].numpy)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn differences ``out`` back into codes ``in``."""
        field = self._field(outputs["out"], scope)
        for axis in range(1, field.ndim):
            field = np.cumsum(field, axis=axis, dtype=field.dtype)
        return {"in": field.reshape(-1).view(scope.types["in"].numpy)}

    def fusion_spec(self) -> FusionSpec:
        """UNFUSABLE: a code is predicted from all before it in the field."""
        return FusionSpec(reason="its prediction spans the whole field")

    def _field(self, stream: PortValue, scope: Scope) -> NDArray[Any]:
        """Return the codes as unsigned, whose arithmetic is modulo 2**bits: a batch of fields."""
        codes: NDArray[Any] = np.ascontiguousarray(stream)
        long = [length for length in scope.shape if length != 1]  # NumPy has fewer axes than archives
        if math.prod(scope.shape) != codes.size:
            raise PipelineError("stage 'lorenzo-nd' reads codes in the array's own order; put it before what lays them out anew")
        kept = min(self.axes or len(long), len(long))
        fields = long[len(long) - kept :] or [codes.size]
        return codes.view(f"u{codes.itemsize}").reshape(-1, *fields) if codes.size else codes.view(f"u{codes.itemsize}")

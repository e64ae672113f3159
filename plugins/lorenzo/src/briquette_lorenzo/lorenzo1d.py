"""The 1-D Lorenzo predictor: each code's difference from the one before it, started anew in every region."""

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
class Lorenzo1D(Stage):
    """Predict each code by its predecessor in the stream; a region's first code is predicted by 0.

    Works on codes, after quantization, so that neither direction waits for a reconstruction ("dual quantization").
    Differences are modulo 2**bits of the code type, which makes the stage lossless for every input.

    Parameters
    ----------
    region : int, optional
        Elements after which the prediction starts anew, 1 to 65,536; 256 by default.

    Raises
    ------
    PipelineError
        If `region` is not an integer in that range.

    Notes
    -----
    The predictor is that of Ibarria, Lindstrom, Rossignac and Szymczak (Out-of-core compression and decompression of
    large n-dimensional scalar fields, 2003), used for error-bounded compression by SZ (Di and Cappello, 2016); its form
    on quantization codes is cuSZ's (Tian et al., 2020), and its restart in short regions that of SZp and cuSZp
    (Huang et al., SC'23).
    """

    region: int = 256

    name: ClassVar[str] = "lorenzo-1d"

    def __post_init__(self) -> None:
        if isinstance(self.region, bool) or not isinstance(self.region, int) or not 1 <= self.region <= MAX_SPAN:
            raise PipelineError(f"region = {self.region!r} of stage 'lorenzo-1d' must be an integer from 1 to {MAX_SPAN}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'lorenzo-1d' takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn codes ``in``, shape (count,), into differences ``out`` of the same shape and type."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        out = np.empty_like(codes)
        # one pass over the stream, region starts put right afterwards: faster than a pass over many short rows
        np.subtract(_modular(codes)[1:], _modular(codes)[:-1], out=_modular(out)[1:])
        out[:: self.region] = codes[:: self.region]
        return {"out": out}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn differences ``out`` back into codes ``in``."""
        deltas: NDArray[Any] = np.asarray(outputs["out"])
        codes = np.empty_like(deltas)
        source, target = _modular(deltas), _modular(codes)
        whole = source.size // self.region * self.region
        rows = (-1, self.region)
        np.cumsum(source[:whole].reshape(rows), axis=1, dtype=source.dtype, out=target[:whole].reshape(rows))
        np.cumsum(source[whole:], dtype=source.dtype, out=target[whole:])
        return {"in": codes}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `region`."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.region)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``Lorenzo1D``."""
        return FusedOp("warp-register", "Lorenzo1D", "briquette_lorenzo/cuda/lorenzo1d.cuh")


def _modular(codes: NDArray[Any]) -> NDArray[Any]:
    """View codes as unsigned, whose arithmetic is modulo 2**bits."""
    return codes.view(f"u{codes.itemsize}")

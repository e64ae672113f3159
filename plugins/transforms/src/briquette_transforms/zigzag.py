"""Zigzag: signed codes to unsigned ones, small magnitudes to small numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class Zigzag(Stage):
    """Fold signs into the lowest bit: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...

    The output is the unsigned code type of the same width; the most negative code becomes the largest number.
    The mapping is the one of protocol buffers (ZigZag encoding) and of the LC framework's TCMS component
    (Burtscher et al.).
    """

    name: ClassVar[str] = "zigzag"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the unsigned type; raise `PipelineError` for anything but a stream of signed codes."""
        given = inputs["in"]
        if not given.is_code or given.dtype.startswith("u"):
            raise PipelineError(f"stage 'zigzag' takes int16, int32 or int64 codes, not {given}; unsigned codes need no folding")
        return {"out": PortType("u" + given.dtype)}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Fold codes ``in``, shape (count,), into ``out``."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        out = codes << 1
        out ^= codes >> (8 * codes.itemsize - 1)
        return {"out": out.view(f"u{codes.itemsize}")}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Unfold ``out`` into the codes ``in``."""
        folded: NDArray[Any] = np.asarray(outputs["out"])
        sign = (folded & folded.dtype.type(1)).view(f"i{folded.itemsize}")
        codes = (folded >> folded.dtype.type(1)).view(sign.dtype)
        codes ^= np.negative(sign, out=sign)
        return {"in": codes}

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE."""
        return FusionSpec(FusionAccess.ELEMENTWISE, 1)

    def fused_op(self) -> FusedOp:
        """The policy ``Zigzag``, which serves both harnesses."""
        return FusedOp(("warp-register", "chunk-cooperative"), "Zigzag", "briquette_transforms/cuda/zigzag.cuh")

"""Negabinary: integers as sums of powers of -2, so that small magnitudes of either sign have few bits set at the top."""

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

from .chunks import words


@dataclass(frozen=True)
class Negabinary(Stage):
    """Write integers in base -2: ``(x + m) ^ m`` with m = ...101010 in binary, modulo 2^bits.

    Signed and unsigned integers of 8 to 64 bits; unsigned ones count as two's complement. The output is the unsigned type of
    the same width.

    Notes
    -----
    The identity is Schroeppel's (HAKMEM, item 128); ZFP (Lindstrom, 2014) and the LC framework's DIFFNB component (Burtscher
    et al.) use it to make bit planes of signed values.
    """

    name: ClassVar[str] = "negabinary"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the unsigned type; raise `PipelineError` for anything but a stream of integers."""
        given = inputs["in"]
        if given.layout != "stream" or "int" not in given.dtype:
            raise PipelineError(f"stage 'negabinary' takes a stream of integers, not {given}; quantize the data first")
        return {"out": PortType("u" + given.dtype.lstrip("u"))}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn ``in``, shape (count,), to base -2."""
        given = words(inputs["in"])
        mask = _mask(given.dtype)
        out: NDArray[Any] = given + mask
        out ^= mask
        return {"out": out}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn ``out`` back to the integers ``in``."""
        given = words(outputs["out"])
        mask = _mask(given.dtype)
        out: NDArray[Any] = given ^ mask
        out -= mask
        return {"in": out.view(scope.types["in"].numpy)}

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE."""
        return FusionSpec(FusionAccess.ELEMENTWISE, 1)

    def fused_op(self) -> FusedOp:
        """The policy ``Negabinary``, which serves both harnesses."""
        return FusedOp(("warp-register", "chunk-cooperative"), "Negabinary", "briquette_transforms/cuda/negabinary.cuh")


def _mask(dtype: np.dtype[Any]) -> Any:
    return dtype.type(0xAAAAAAAAAAAAAAAA & ((1 << (8 * dtype.itemsize)) - 1))

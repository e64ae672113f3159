"""Arithmetic of the linear quantizer for 16-bit floats: float32 on the widened value, narrowed to the nearest, ties to even."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .bound import largest_code, toward_zero

_F32: Final = np.dtype(np.float32)


def widen(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return float16 or bfloat16 values as float32, which holds each of them."""
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    return (values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return float32 values rounded to float16 or bfloat16, beyond the largest finite one to an infinity."""
    if dtype.kind == "f":
        return values.astype(dtype)
    bits = values.view(np.uint32)
    found: NDArray[Any] = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)).astype(np.uint16)
    found[np.isnan(values)] = 0x7FC0
    return found.view(dtype)


class NarrowRule:
    """The arithmetic for a 16-bit type, which every target mirrors bit for bit.

    A code of many bits needs no float64 as it does for float32 data: what float32 gets wrong of it is far less than the half
    unit in the last place that narrowing puts right.
    """

    def __init__(
        self,
        eb: float,
        step: float,
        inverse: float,
        fill: int,
        dtype: np.dtype[Any],
        code: np.dtype[Any],
        most: int | None = None,
    ) -> None:
        self.fill, self.dtype, self.code = fill, dtype, code
        with np.errstate(over="ignore", under="ignore"):
            self.step, self.inverse = np.float32(step), np.float32(inverse)
        self._bound = np.float32(toward_zero(eb, _F32))
        self._limit = np.float32(largest_code(code, _F32) if most is None else toward_zero(most, _F32))

    def quantize(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return the codes, and which values to keep aside (None: none)."""
        wide = widen(values)
        q = np.rint(wide * self.inverse)
        fits = np.abs(q) <= self._limit
        held = q if fits.all() else np.where(fits, q, np.float32(0.0))
        codes = held.astype(self.code)
        # a difference of two 16-bit floats at most a step apart is exact in float32
        kept = ~((np.abs(wide - widen(narrow(held * self.step, self.dtype))) <= self._bound) & fits)
        if held is not q:
            codes[~fits] = self.fill
        return codes, kept if kept.any() else None

    def dequantize(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the values the codes stand for."""
        return narrow(codes.astype(np.float32) * self.step, self.dtype)

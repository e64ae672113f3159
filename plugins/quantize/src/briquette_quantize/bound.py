"""How a quantizer resolves what it was asked for, in float64: the value range and the absolute bound, rounded down, and the step."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: share of the step given up so that no rounding on the way takes a value out of the bound
_SHRINK: Final = 1.0 - 2.0**-7
_MAX: Final = sys.float_info.max
#: elements looked at together, few enough to stay in a core's cache
_PIECE: Final = 1 << 18


@dataclass(frozen=True)
class Extent:
    """Smallest and largest finite value of a stream, and its first one; all 0 where there is none."""

    lo: float
    hi: float
    first: float

    @property
    def magnitude(self) -> float:
        return max(abs(self.lo), abs(self.hi))


def round_down(exact: Fraction) -> float:
    """Return the largest float64 that is not above `exact`."""
    try:
        near = float(exact)
    except OverflowError:
        return _MAX if exact > 0 else -math.inf
    return math.nextafter(near, -math.inf) if Fraction(near) > exact else near


def toward_zero(value: float, dtype: np.dtype[Any]) -> float:
    """Return `value`, which is not negative, rounded toward zero to a floating-point `dtype`."""
    with np.errstate(over="ignore", under="ignore"):
        near = dtype.type(value)
    if float(near) > value:
        near = np.nextafter(near, dtype.type(0))
    return float(near)


def largest_code(code: np.dtype[Any], dtype: np.dtype[Any]) -> float:
    """Return the largest integer that `dtype` holds and the signed type `code` too."""
    return toward_zero(np.iinfo(code).max, dtype)


def first_finite(values: NDArray[Any]) -> float | None:
    """Return the first finite value, or None."""
    for piece in _pieces(values):
        finite = np.isfinite(piece)
        at = int(finite.argmax())
        if finite[at]:
            return float(piece[at])
    return None


def extent(values: NDArray[Any]) -> Extent:
    """Return the extent of the finite values."""
    first = first_finite(values)
    if first is None:
        return Extent(0.0, 0.0, 0.0)
    lo = hi = first
    for piece in _pieces(values):
        low, high = float(piece.min()), float(piece.max())  # NaN and infinities show here
        if not (math.isfinite(low) and math.isfinite(high)):
            finite = piece[np.isfinite(piece)]
            if not finite.size:
                continue
            low, high = float(finite.min()), float(finite.max())
        lo, hi = min(lo, low), max(hi, high)
    return Extent(lo, hi, first)


def _pieces(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    size = 64
    at = 0
    while at < values.size:  # the first pieces are short: the first finite value is nearly always at the front
        yield values[at : at + size]
        at += size
        size = min(_PIECE, 8 * size)


def range_bound(relative: float, over: Extent) -> tuple[float, float]:
    """Return the range of the finite values and the absolute bound ``relative * range``, both rounded down."""
    if math.isfinite(over.hi - over.lo):
        span = round_down(Fraction(over.hi) - Fraction(over.lo))
        return span, round_down(Fraction(relative) * Fraction(span))
    half = round_down((Fraction(over.hi) - Fraction(over.lo)) / 2)
    return min(2.0 * half, _MAX), min(2.0 * round_down(Fraction(relative) * Fraction(half)), _MAX)


def step_for(eb: float, magnitude: float | None, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the quantization step and its inverse, both 0 where either is zero or not finite.

    Parameters
    ----------
    eb : float
        Absolute bound.
    magnitude : float or None
        Largest magnitude of the finite values, where known: half its unit in the last place is then left to narrowing.
    dtype : dtype
        The data's type.
    """
    margin = eb if magnitude is None else eb - _ulp(magnitude, dtype) / 2.0
    if not margin > 0.0:
        margin = eb
    step = 2.0 * margin * _SHRINK
    inverse = 1.0 / step if step > 0.0 else 0.0
    if not (0.0 < step < math.inf and 0.0 < inverse < math.inf):
        return 0.0, 0.0
    return step, inverse


def _ulp(magnitude: float, dtype: np.dtype[Any]) -> float:
    if dtype.itemsize == 8:
        return math.ulp(magnitude)
    return math.ldexp(1.0, max(math.frexp(magnitude)[1] - 24, -149)) if magnitude else math.ldexp(1.0, -149)

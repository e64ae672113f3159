"""The step a quantizer derives from an absolute bound, and the limits of its codes; all in float64."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

#: significant bits and exponent of the smallest unit in the last place, by dtype
_FORMATS: Final = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149), "float64": (53, -1074)}
#: share of the step given up so that no rounding on the way takes a value out of the bound
_SHRINK: Final = 1.0 - 2.0**-7


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


#: the least share that is given up where the largest magnitude is known
_LEAST: Final = 2.0**-12


def step_for(eb: float, magnitude: float | None, dtype: np.dtype[Any], close: bool = False) -> tuple[float, float]:
    """Return the quantization step and its inverse, both 0 where either is zero or not finite.

    Parameters
    ----------
    eb : float
        Absolute bound.
    magnitude : float or None
        Largest magnitude of the finite values, where known: half its unit in the last place is then left to narrowing.
        For 16-bit types, whose units are large, half the step is a whole number of those halves instead, so that narrowing,
        which goes to the nearest multiple of a unit, takes nothing out of the bound; where the magnitude is not known, or the
        bound below half its unit, half the step is a power of two, which has this property for every magnitude.
    dtype : dtype
        The data's type.
    close : bool, optional
        Where the magnitude is known, give up no more than float32 arithmetic needs for the largest code: 2**-21 for each bound
        that the magnitude is long, at least 2**-12 and at most the usual 2**-7. Not for 16-bit types.
    """
    shrink = _SHRINK
    if close and magnitude is not None and dtype.itemsize > 2 and eb > 0.0:
        shrink = 1.0 - min(max(magnitude / eb * 2.0**-21, _LEAST), 2.0**-7)
    if dtype.itemsize == 2:
        margin = _aligned(eb, magnitude, dtype)
    else:
        margin = eb if magnitude is None else eb - _ulp(magnitude, dtype) / 2.0
    if not margin > 0.0:
        margin = eb
    step = 2.0 * margin * shrink
    inverse = 1.0 / step if step > 0.0 else 0.0
    if not (0.0 < step < math.inf and 0.0 < inverse < math.inf):
        return 0.0, 0.0
    return step, inverse


def _aligned(eb: float, magnitude: float | None, dtype: np.dtype[Any]) -> float:
    half = math.inf if magnitude is None else _ulp(magnitude, dtype) / 2.0
    if eb >= half:
        return math.floor(eb / half) * half if eb < 2.0**52 * half else eb
    return math.ldexp(1.0, math.frexp(eb)[1] - 1) if eb >= 2.0**-1022 else 0.0


def _ulp(magnitude: float, dtype: np.dtype[Any]) -> float:
    bits, lowest = _FORMATS[dtype.name]
    return math.ldexp(1.0, max(math.frexp(magnitude)[1] - bits, lowest) if magnitude else lowest)

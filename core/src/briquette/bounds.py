"""The guarantee: how a bound is resolved against data, and how it is checked exactly.

Everything here is float64 arithmetic whose rounding errors are known, so no tolerance is needed anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .record import Bound

_PIECE: Final = 1 << 18
_MAX: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class ResolvedBound:
    """An absolute bound in float64, with what was learnt about the data on the way.

    Attributes
    ----------
    eb : float
        Absolute bound; 0.0 where a range-relative bound meets a constant field.
    value_range : float or None
        Range of the finite values, rounded down, at most the largest float64; None in ``abs`` mode.
    largest : float or None
        Largest magnitude of the finite values; None in ``abs`` mode.
    """

    eb: float
    value_range: float | None = None
    largest: float | None = None


def resolve(bound: Bound, data: NDArray[Any]) -> ResolvedBound:
    """Return the absolute bound for `data` (any shape, float): ``rel * range``, rounded down."""
    if bound.mode == "abs":
        return ResolvedBound(bound.eb)
    low, high = finite_range(data)
    exact = Fraction(high) - Fraction(low)
    value_range = round_down(exact)
    if math.isinf(high - low):  # too wide for float64: halve first, as every target does
        half = round_down(Fraction(high / 2) - Fraction(low / 2))
        eb = min(2.0 * round_down(Fraction(bound.eb) * Fraction(half)), _MAX)
        return ResolvedBound(eb, min(2.0 * half, _MAX), max(abs(low), abs(high)))
    eb = round_down(Fraction(bound.eb) * Fraction(value_range))
    return ResolvedBound(eb, value_range, max(abs(low), abs(high)))


def round_down(exact: Fraction) -> float:
    """Return the largest float64 not above `exact` >= 0 (at most the largest finite one)."""
    try:
        value = float(exact)
    except OverflowError:
        return _MAX
    if math.isinf(value):
        return _MAX
    return math.nextafter(value, 0.0) if Fraction(value) > exact else value


def finite_range(data: NDArray[Any]) -> tuple[float, float]:
    """Return (lowest, highest) of the finite values of `data` as float64; (0.0, 0.0) where there are none."""
    low, high = math.inf, -math.inf
    for piece in _pieces(data.reshape(-1)):
        a, b = float(piece.min()), float(piece.max())
        if not (math.isfinite(a) and math.isfinite(b)):
            kept = piece[np.isfinite(piece)]
            if not kept.size:
                continue
            a, b = float(kept.min()), float(kept.max())
        low, high = min(low, a), max(high, b)
    return (low, high) if low <= high else (0.0, 0.0)


def _pieces(flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for at in range(0, flat.size, _PIECE):
        yield flat[at : at + _PIECE]


@dataclass(frozen=True)
class BoundReport:
    """What comparing a reconstruction with its original found.

    Attributes
    ----------
    violations : int
        Finite values whose error exceeds the bound, evaluated exactly.
    specials_changed : int
        NaN (payload included) and infinities that did not come back bit for bit.
    largest_error : float
        Over the finite values, rounded to float64.
    first_violation : int
        Flat index of the first of either kind, -1 where there is none.
    psnr : float
        20 log10(range / rms error) in dB over the finite values; inf where all are exact.
    """

    violations: int
    specials_changed: int
    largest_error: float
    first_violation: int
    psnr: float

    @property
    def ok(self) -> bool:
        return not (self.violations or self.specials_changed)


def compare(original: NDArray[Any], restored: NDArray[Any], eb: float) -> BoundReport:
    """Check ``|x - x'| <= eb`` for every finite value of `original`, exactly, and specials bit for bit.

    The float64 difference and its rounding error (Knuth's two-sum) decide, so the comparison is that of real
    numbers. Both arrays are float32 or float64 of one size.
    """
    x, y = original.reshape(-1), restored.reshape(-1)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    violations = specials = 0
    largest, square, first = 0.0, 0.0, -1
    for at in range(0, x.size, _PIECE):
        raw, back = x[at : at + _PIECE], y[at : at + _PIECE]
        finite = np.isfinite(raw)
        differs = ~finite & (np.ascontiguousarray(raw).view(bits) != np.ascontiguousarray(back).view(bits))
        with np.errstate(invalid="ignore", over="ignore"):
            a, b = raw.astype(np.float64), -back.astype(np.float64)
            hi = a + b
            part = hi - a
            lo = (a - (hi - part)) + (b - part)
            size = np.abs(hi)
            over = finite & ~((size < eb) | ((size == eb) & ((lo == 0) | ((lo < 0) == (hi > 0)))))
        violations += int(np.count_nonzero(over))
        specials += int(np.count_nonzero(differs))
        wrong = over | differs
        if first < 0 and wrong.any():
            first = at + int(np.argmax(wrong))
        kept = size[finite]
        if kept.size:
            largest = max(largest, float(np.nan_to_num(kept.max(), nan=math.inf)))
            square += float(np.sum(kept * kept))
    low, high = finite_range(x) if x.size else (0.0, 0.0)
    count = max(x.size, 1)
    psnr = math.inf if square == 0.0 else 20 * math.log10(max(high - low, 5e-324)) - 10 * math.log10(square / count)
    return BoundReport(violations, specials, largest, first, psnr)

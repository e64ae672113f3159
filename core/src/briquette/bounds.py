"""The guarantee: how a bound is resolved against data, and how it is checked exactly.

Everything here is float64 arithmetic whose rounding errors are known, so no tolerance is needed anywhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .record import Bound

_PIECE: Final = 1 << 18
_MAX: Final = sys.float_info.max


def resolve(bound: Bound, data: NDArray[Any]) -> float:
    """Return the absolute bound for `data` (any shape, float); 0.0 where a range-relative one meets a constant field."""
    return bound.eb if bound.mode == "abs" else range_bound(bound.eb, extent(data.reshape(-1)))[1]


@dataclass(frozen=True)
class Extent:
    """Smallest and largest finite value of a stream, and its first one; all 0 where there is not `any`."""

    lo: float
    hi: float
    first: float
    any: bool = True

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
        return Extent(0.0, 0.0, 0.0, False)
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
        20 log10(range / rms error) in dB over the finite values; inf where all are exact, -inf where one did not come back
        finite.
    """

    violations: int
    specials_changed: int
    largest_error: float
    first_violation: int
    psnr: float

    @property
    def ok(self) -> bool:
        return not (self.violations or self.specials_changed)


def compare(original: NDArray[Any], restored: NDArray[Any], eb: float, ranged: Extent | None = None) -> BoundReport:
    """Check ``|x - x'| <= eb`` for every finite value of `original`, exactly, and specials bit for bit.

    The float64 difference and its rounding error (Knuth's two-sum) decide, so the comparison is that of real
    numbers. Both arrays are float32 or float64 of one size. `ranged` has the range that the PSNR is taken of: by default the
    original's own extent; that of the whole, where the original is a sample.
    """
    x, y = original.reshape(-1), restored.reshape(-1)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    violations = specials = 0
    largest, first = 0.0, -1
    mean = _RootMeanSquare()
    for at in range(0, x.size, _PIECE):
        raw, back = x[at : at + _PIECE], y[at : at + _PIECE]
        finite = np.isfinite(raw)
        differs = ~finite & (np.ascontiguousarray(raw).view(bits) != np.ascontiguousarray(back).view(bits))
        with np.errstate(all="ignore"):  # whatever the caller has set: overflow and rounding are accounted for
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
            worst = float(kept.max())
            largest = max(largest, math.inf if math.isnan(worst) else worst)
            if math.isfinite(worst):
                mean.add(kept, worst)
            else:
                with np.errstate(all="ignore"):
                    half = np.abs(a[finite] / 2 + b[finite] / 2)  # finite, for values that are
                mean.add(half, float(half.max()), 2.0)
    psnr = math.inf if largest == 0.0 else 20 * (_log_width(extent(x) if ranged is None else ranged) - mean.log10())
    return BoundReport(violations, specials, largest, first, psnr)


def _log_width(over: Extent) -> float:
    """Return the decimal logarithm of the range, which itself may be above the largest float64."""
    width = over.hi - over.lo
    return math.log10(max(width, 5e-324)) if math.isfinite(width) else math.log10(over.hi / 2 - over.lo / 2) + math.log10(2.0)


class _RootMeanSquare:
    """A root mean square, summed in units of the largest value so far: no square overflows, and none that counts underflows."""

    def __init__(self) -> None:
        self._unit = (1.0, 0.0)  # scale, and what it scales
        self._sum = 0.0
        self._count = 0

    def add(self, values: NDArray[np.float64], largest: float, scale: float = 1.0) -> None:
        """Take in ``scale * values``, which are not negative; `largest` is the maximum, above which `scale` is used."""
        self._count += values.size
        if largest == 0.0:
            return
        with np.errstate(all="ignore"):
            found = float(np.sum(np.square(values / largest)))
        unit = (scale, largest)
        low, high = sorted((unit, self._unit))
        ratio = low[1] / high[1] * (low[0] / high[0])
        if high == unit:
            self._sum, self._unit = self._sum * ratio * ratio + found, unit
        else:
            self._sum += found * ratio * ratio

    def log10(self) -> float:
        """Return the decimal logarithm; inf where a value was not finite."""
        scale, largest = self._unit
        if not (math.isfinite(largest) and math.isfinite(self._sum)):
            return math.inf
        return math.log10(scale) + math.log10(largest) + math.log10(self._sum / self._count) / 2

"""The guarantee: how a bound is resolved against data, and how it is checked exactly.

Everything here is float64 arithmetic whose rounding errors are known, or integer arithmetic, so no tolerance is needed anywhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError
from .record import Bound

if TYPE_CHECKING:
    from fractions import Fraction

_PIECE: Final = 1 << 18
_MAX: Final = sys.float_info.max


def resolve(bound: Bound, data: NDArray[Any], missing: Sequence[float] = ()) -> float:
    """Return the absolute bound for `data` (any shape), an int for integers; 0 where a range-relative one meets a constant.

    A point-wise relative one depends on no data and is returned as it is. Values that are `missing` do not count.
    """
    over = extent(data.reshape(-1), missing) if bound.mode == "rel" else Extent(0, 0, 0)
    if data.dtype.kind in "iu":
        return integer_bound(bound, over)
    return range_bound(bound.eb, over)[1] if bound.mode == "rel" else bound.eb


def are_missing(values: NDArray[Any], missing: Sequence[float]) -> NDArray[np.bool_] | None:
    """Return which values have the bits of one of `missing` in their own dtype (float); None where none is looked for."""
    if not missing:
        return None
    kind = f"u{values.dtype.itemsize}"
    wanted = _narrowed(missing, values.dtype).view(kind)
    bits = np.ascontiguousarray(values).view(kind)
    found: NDArray[np.bool_] = bits == wanted[0]
    for each in wanted[1:]:
        found |= bits == each
    return found


def _narrowed(missing: Sequence[float], dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore", under="ignore"):
        return np.array(missing).astype(dtype)


def _counted(values: NDArray[Any], missing: Sequence[float]) -> NDArray[np.bool_]:
    """Return which values are finite and not missing."""
    counted: NDArray[np.bool_] = np.isfinite(values)
    absent = are_missing(values, missing)
    if absent is not None:
        counted &= ~absent
    return counted


class Extent(NamedTuple):
    """Smallest and largest finite value of a stream, and its first one (ints of integers); all 0 where there is not `any`."""

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
    return math.nextafter(near, -math.inf) if near > exact else near


def first_finite(values: NDArray[Any], missing: Sequence[float] = ()) -> float | None:
    """Return the first finite value that is not missing, or None."""
    missing = _as_looked_at(missing, values.dtype)
    for piece in _pieces(values):
        finite = _counted(piece, missing)
        at = int(finite.argmax())
        if finite[at]:
            return _number(piece[at])
    return None


def _number(value: Any) -> float:
    return int(value) if isinstance(value, np.integer) else float(value)


def extent(values: NDArray[Any], missing: Sequence[float] = ()) -> Extent:
    """Return the extent of the finite values that are not missing."""
    missing = _as_looked_at(missing, values.dtype)
    first = first_finite(values, missing)
    if first is None:
        return Extent(0.0, 0.0, 0.0, False)
    lo = hi = first
    for piece in _pieces(values):
        low, high = _number(piece.min()), _number(piece.max())  # NaN and infinities show here
        if missing or not (math.isfinite(low) and math.isfinite(high)):
            finite = piece[_counted(piece, missing)]
            if not finite.size:
                continue
            low, high = _number(finite.min()), _number(finite.max())
        lo, hi = min(lo, low), max(hi, high)
    return Extent(lo, hi, first)


def _pieces(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    size = 64
    at = 0
    while at < values.size:  # the first pieces are short: the first finite value is nearly always at the front
        piece = values[at : at + size]
        yield piece.astype(np.float32) if piece.itemsize == 2 and piece.dtype.kind not in "iu" else piece  # NumPy is slow there
        at += size
        size = min(_PIECE, 8 * size)


def _as_looked_at(missing: Sequence[float], dtype: np.dtype[Any]) -> Sequence[float]:
    """Return what missing values are in pieces of data of this type: 16-bit floats are looked at as float32."""
    if not missing or dtype.itemsize != 2:
        return missing
    return [float(value) for value in _narrowed(missing, dtype)]


def range_bound(relative: float, over: Extent) -> tuple[float, float]:
    """Return the range of the finite values and the absolute bound ``relative * range``, both rounded down."""
    from fractions import Fraction  # slow to import, and an absolute bound needs none

    if math.isfinite(over.hi - over.lo):
        span = round_down(Fraction(over.hi) - Fraction(over.lo))
        return span, round_down(Fraction(relative) * Fraction(span))
    half = round_down((Fraction(over.hi) - Fraction(over.lo)) / 2)
    return min(2.0 * half, _MAX), min(2.0 * round_down(Fraction(relative) * Fraction(half)), _MAX)


def integer_bound(bound: Bound | None, over: Extent) -> int:
    """Return the absolute bound of integers whose extent is `over` (read for range-relative bounds only): 0 is lossless.

    Raises
    ------
    UsageError
        For a point-wise relative bound, which integers do not have.
    """
    if bound is None:
        return 0
    if bound.mode == "pwrel":
        raise UsageError("integers have no point-wise relative bound; use mode abs or rel, or convert them to float64")
    from fractions import Fraction

    return math.floor(Fraction(bound.eb) * (int(over.hi) - int(over.lo) if bound.mode == "rel" else 1))


@dataclass(frozen=True)
class BoundReport:
    """What comparing a reconstruction with its original found.

    Attributes
    ----------
    violations : int
        Finite values whose error exceeds the bound, evaluated exactly; point by point also zeros whose sign changed.
    specials_changed : int
        NaN (payload included), infinities and missing values that did not come back bit for bit.
    largest_error : float
        Over the finite values, rounded to float64; point by point, each relative to its value.
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


def compare(
    original: NDArray[Any],
    restored: NDArray[Any],
    eb: float,
    ranged: Extent | None = None,
    *,
    point_wise: bool = False,
    missing: Sequence[float] = (),
) -> BoundReport:
    """Check ``|x - x'| <= eb``, or ``eb * |x|``, for every finite value of `original`, exactly, and specials bit for bit.

    The float64 difference and its rounding error (Knuth's two-sum) decide, so the comparison is that of real
    numbers; point by point (`point_wise`), what float64 cannot decide is compared in fractions. Values that are `missing`
    are specials. Both arrays are of one size and one type: floating-point, or integer, whose differences are integers. `ranged`
    has the range that the PSNR is taken of: by default the original's own extent; that of the whole, where the original is a
    sample.
    """
    x, y = original.reshape(-1), restored.reshape(-1)
    if x.dtype.kind in "iu":
        return _compare_integers(x, y, math.floor(eb), extent(x) if ranged is None else ranged)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    violations = specials = 0
    largest, first = 0.0, -1
    mean = _RootMeanSquare()
    for at in range(0, x.size, _PIECE):
        raw, back = x[at : at + _PIECE], y[at : at + _PIECE]
        finite = _counted(raw, missing)
        differs = ~finite & (np.ascontiguousarray(raw).view(bits) != np.ascontiguousarray(back).view(bits))
        with np.errstate(all="ignore"):  # whatever the caller has set: overflow and rounding are accounted for
            a, b = raw.astype(np.float64), -back.astype(np.float64)
            hi = a + b
            part = hi - a
            lo = (a - (hi - part)) + (b - part)
            size = np.abs(hi)
            if point_wise:
                errors, beyond = _relative(a, -b, size, eb)
                over = finite & beyond
            else:
                errors, over = size, finite & ~((size < eb) | ((size == eb) & ((lo == 0) | ((lo < 0) == (hi > 0)))))
        violations += int(np.count_nonzero(over))
        specials += int(np.count_nonzero(differs))
        wrong = over | differs
        if first < 0 and wrong.any():
            first = at + int(np.argmax(wrong))
        kept = size[finite]
        if kept.size:
            top, worst = float(errors[finite].max()), float(kept.max())
            largest = max(largest, math.inf if math.isnan(top) else top)
            if math.isfinite(worst):
                mean.add(kept, worst)
            else:
                with np.errstate(all="ignore"):
                    half = np.abs(a[finite] / 2 + b[finite] / 2)  # finite, for values that are
                mean.add(half, float(half.max()), 2.0)
    width = extent(x, missing) if ranged is None else ranged
    psnr = math.inf if largest == 0.0 else 20 * (_log_width(width) - mean.log10())
    return BoundReport(violations, specials, largest, first, psnr)


def _compare_integers(x: NDArray[Any], y: NDArray[Any], eb: int, over: Extent) -> BoundReport:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    limit = unsigned.type(min(eb, np.iinfo(unsigned).max))
    violations, largest, first, mean = 0, 0, -1, _RootMeanSquare()
    for at in range(0, x.size, _PIECE):
        a, b = x[at : at + _PIECE], y[at : at + _PIECE]
        size = a.view(unsigned) - b.view(unsigned)  # modulo 2**bits, which every difference fits
        np.negative(size, out=size, where=a < b)
        wrong = size > limit
        violations += int(np.count_nonzero(wrong))
        if first < 0 and wrong.any():
            first = at + int(np.argmax(wrong))
        largest = max(largest, int(size.max()))
        mean.add(size.astype(np.float64), float(size.max()))
    psnr = math.inf if largest == 0 else 20 * (_log_width(over) - mean.log10())
    return BoundReport(violations, 0, float(largest), first, psnr)


def _relative(
    x: NDArray[np.float64], y: NDArray[np.float64], size: NDArray[np.float64], eb: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the errors `size` of `y` relative to `x`, and which are beyond `eb`, exactly; zeros must keep their sign."""
    from fractions import Fraction

    tiny = np.where(np.abs(x) < 2.0**-400, 2.0**600, 1.0)  # no product below is subnormal, unless an error of 0 is all it allows
    whole = np.abs(x) * tiny
    found, allowed = size * tiny, eb * whole
    errors = np.where(found > 0, found / whole, found)  # 0 / 0 is no error
    within = found * (1 + 2.0**-50) <= allowed * (1 - 2.0**-50)
    beyond = ~(found * (1 - 2.0**-50) <= allowed * (1 + 2.0**-50))
    for at in np.flatnonzero(~within & ~beyond).tolist():
        exact = Fraction(float(x[at]))
        beyond[at] = abs(exact - Fraction(float(y[at]))) > Fraction(eb) * abs(exact)
    return errors, beyond | ((x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y)))


def _log_width(over: Extent) -> float:
    """Return the decimal logarithm of the range, which itself may be above the largest float64, or 0."""
    width = over.hi - over.lo
    if width == 0.0:
        return -math.inf
    return math.log10(width) if math.isfinite(width) else math.log10(over.hi / 2 - over.lo / 2) + math.log10(2.0)


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

"""Resolution of range and bound: every rounding goes the stated way, in exact arithmetic."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from briquette.bounds import Extent, compare, extent, first_finite, range_bound, round_down

finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@given(finite, finite)
def test_round_down_is_the_nearest_from_below(a: float, b: float) -> None:
    for exact in (Fraction(a) + Fraction(b), Fraction(a) * Fraction(b)):
        down = round_down(exact)
        if math.isinf(down):
            assert exact < -Fraction(sys.float_info.max)
            continue
        assert Fraction(down) <= exact
        above = math.nextafter(down, math.inf)
        assert math.isinf(above) or Fraction(above) > exact


@given(finite, finite, positive)
def test_range_and_bound_are_never_above_the_exact_ones(a: float, b: float, relative: float) -> None:
    lo, hi = min(a, b), max(a, b)
    span, eb = range_bound(relative, Extent(lo, hi, lo))
    assert Fraction(span) <= Fraction(hi) - Fraction(lo)
    assert Fraction(eb) <= Fraction(relative) * (Fraction(hi) - Fraction(lo))
    assert math.isfinite(span)
    assert math.isfinite(eb)


def test_a_range_that_overflows_is_halved_first() -> None:
    top = sys.float_info.max
    span, eb = range_bound(1e-3, Extent(-top, top, 0.0))
    assert span == top
    assert Fraction(eb) <= Fraction(1e-3) * 2 * Fraction(top) < Fraction(math.nextafter(eb, math.inf)) * (1 + Fraction(1, 2**50))
    assert range_bound(1e300, Extent(-top, top, 0.0)) == (top, top)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 5000, 400_000])
def test_extent_skips_what_is_not_finite(n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n)
    for at in {0, n // 2, n - 1}:
        holed = values.copy()
        holed[at] = np.nan
        holed[: n // 3] = np.inf
        good = holed[np.isfinite(holed)]
        expected = Extent(good.min(), good.max(), good[0]) if good.size else Extent(0.0, 0.0, 0.0, False)
        assert extent(holed) == expected
        assert first_finite(holed) == (good[0] if good.size else None)
    assert extent(np.empty(0)) == Extent(0.0, 0.0, 0.0, False)


def exact_violations(x: np.ndarray, y: np.ndarray, eb: float) -> int:
    return sum(abs(Fraction(float(a)) - Fraction(float(b))) > Fraction(eb) for a, b in zip(x, y, strict=True) if math.isfinite(a))


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=20), positive, st.sampled_from([0.0, 1.0, -1.0]))
def test_compare_is_the_comparison_of_real_numbers(pairs: list[tuple[float, float]], eb: float, nudge: float) -> None:
    x = np.array([a for a, _ in pairs])
    with np.errstate(over="ignore"):
        y = np.array([b for _, b in pairs]) if nudge == 0.0 else x + nudge * eb  # most interesting right at the bound
    y = np.nan_to_num(y)
    report = compare(x, y, eb)
    assert report.violations == exact_violations(x, y, eb)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compare_sees_a_changed_payload_and_a_lost_infinity(dtype: type) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0], dtype)
    assert compare(x, x.copy(), 0.0).ok
    y = x.copy()
    y.view(f"u{x.itemsize}")[0] ^= 1
    y[2] = np.inf
    report = compare(x, y, 1.0)
    assert (report.specials_changed, report.first_violation, report.ok) == (2, 0, False)


def test_compare_counts_a_nan_where_a_number_was() -> None:
    report = compare(np.array([1.0, 2.0]), np.array([1.0, np.nan]), 1.0)
    assert report.violations == 1
    assert report.largest_error == math.inf

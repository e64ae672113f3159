"""Resolution of range, bound and step: every rounding goes the stated way, in exact arithmetic."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from briquette_quantize.bound import Extent, extent, first_finite, largest_code, range_bound, round_down, step_for, toward_zero

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


@given(positive)
def test_toward_zero(value: float) -> None:
    single = toward_zero(value, F32)
    assert single <= value
    assert float(np.float32(single)) == single
    assert single == float(np.finfo(np.float32).max) or float(np.nextafter(np.float32(single), np.float32(np.inf))) > value
    assert toward_zero(value, F64) == value


def test_largest_codes() -> None:
    assert largest_code(np.dtype(np.int32), F32) == 2147483520.0
    assert largest_code(np.dtype(np.int32), F64) == 2147483647.0
    assert largest_code(np.dtype(np.int64), F64) == 2.0**63 - 1024
    assert largest_code(np.dtype(np.int16), F32) == 32767.0


def test_step_leaves_room_for_narrowing() -> None:
    shrink = 1 - 2.0**-7
    assert step_for(1e-3, None, F32) == (2 * 1e-3 * shrink, 1 / (2 * 1e-3 * shrink))
    assert step_for(1e-3, 1000.0, F32)[0] == 2 * (1e-3 - 2.0**-15) * shrink
    assert step_for(1e-3, 1e-42, F32)[0] == 2 * (1e-3 - 2.0**-150) * shrink
    assert step_for(1e-3, 1000.0, F64)[0] == 2 * (1e-3 - math.ulp(1000.0) / 2) * shrink
    assert step_for(1e-3, 1e9, F32)[0] == 2 * 1e-3 * shrink  # no room: the bound alone


@pytest.mark.parametrize("eb", [0.0, 5e-324, 1e-310, 1.7e308])
def test_steps_without_an_inverse_are_zero(eb: float) -> None:
    assert step_for(eb, None, F64) == (0.0, 0.0)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 5000, 400_000])
def test_extent_skips_what_is_not_finite(n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n)
    for at in {0, n // 2, n - 1}:
        holed = values.copy()
        holed[at] = np.nan
        holed[: n // 3] = np.inf
        good = holed[np.isfinite(holed)]
        expected = Extent(good.min(), good.max(), good[0]) if good.size else Extent(0.0, 0.0, 0.0)
        assert extent(holed) == expected
        assert first_finite(holed) == (good[0] if good.size else None)
    assert extent(np.empty(0)) == Extent(0.0, 0.0, 0.0)

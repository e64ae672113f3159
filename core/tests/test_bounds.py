"""Resolution of range and bound: every rounding goes the stated way, in exact arithmetic."""

from __future__ import annotations

import math
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from briquette.bounds import Extent, are_missing, compare, extent, first_finite, range_bound, resolve, round_down
from briquette.record import Bound

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


def exact_relative_violations(x: np.ndarray, y: np.ndarray, eb: float) -> int:
    pairs = [(Fraction(float(a)), float(a), float(b)) for a, b in zip(x, y, strict=True)]
    return sum(
        not math.isfinite(b)
        or abs(exact - Fraction(b)) > Fraction(eb) * abs(exact)
        or (a == 0 == b and math.copysign(1, a) != math.copysign(1, b))
        for exact, a, b in pairs
    )


near_bound = st.sampled_from([None, 0, 1, -1, 2, -2, 100])


@given(
    st.lists(st.tuples(finite, finite, near_bound, st.booleans()), min_size=1, max_size=20),
    st.floats(min_value=0.0, max_value=1.0, exclude_min=True, exclude_max=True),
)
def test_point_by_point_too_it_is_the_comparison_of_real_numbers(
    pairs: list[tuple[float, float, int | None, bool]], eb: float
) -> None:
    x, y = [], []
    for a, b, steps, up in pairs:
        if steps is not None:  # most interesting right at the bound
            b = a + eb * a if up else a - eb * a
            for _ in range(abs(steps)):
                b = math.nextafter(b, math.copysign(math.inf, steps))
        x.append(a)
        y.append(b)
    report = compare(np.array(x), np.array(y), eb, point_wise=True)
    assert report.violations == exact_relative_violations(np.array(x), np.array(y), eb)


def test_point_by_point_errors_are_relative_and_zeros_exact() -> None:
    x = np.array([100.0, 0.0, -0.0, 5e-324, np.nan, -2.0, 1e308])
    report = compare(x, np.array([101.0, 0.0, -0.0, 5e-324, np.nan, -2.5, 1e308]), 0.25, point_wise=True)
    assert (report.ok, report.largest_error) == (True, 0.25)
    for at, value in ((1, -0.0), (2, 0.0), (1, 5e-324), (3, 0.0), (5, 2.0), (0, np.nan), (6, np.inf)):
        y = x.copy()
        y[at] = value
        report = compare(x, y, 0.25, point_wise=True)
        assert (report.violations, report.first_violation) == (1, at)


def test_compare_counts_a_nan_where_a_number_was() -> None:
    report = compare(np.array([1.0, 2.0]), np.array([1.0, np.nan]), 1.0)
    assert report.violations == 1
    assert report.largest_error == math.inf


TINY, TOP = 5e-324, sys.float_info.max


@pytest.mark.parametrize(
    ("x", "y", "psnr"),
    [
        ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], math.inf),
        ([0.0, 1.0], [0.1, 1.0], 20 * math.log10(1 / (0.1 / math.sqrt(2)))),
        ([0.0, 1e200], [1e199, 1e200], 20 * math.log10(10 * math.sqrt(2))),  # the square overflows
        ([0.0, 1e-200], [1e-201, 1e-200], 20 * math.log10(10 * math.sqrt(2))),  # the square underflows
        ([0.0, 4 * TINY], [TINY, 4 * TINY], 20 * math.log10(4 * math.sqrt(2))),
        ([0.0, TOP], [TINY, TOP], 20 * (math.log10(TOP) - math.log10(TINY) + math.log10(2) / 2)),
        ([-TOP, TOP], [TOP, -TOP], 0.0),  # range and errors overflow
        ([-TOP, TOP], [-TOP, TOP / 2], 20 * math.log10(4 * math.sqrt(2))),
        ([0.0, 1.0], [np.nan, 1.0], -math.inf),
        ([0.0, 1.0], [np.inf, 1.0], -math.inf),
        ([7.0, 7.0], [7.1, 7.0], -math.inf),  # there is no range
        ([np.nan, np.inf], [np.nan, np.inf], math.inf),
    ],
)
def test_psnr_neither_overflows_nor_underflows(x: list[float], y: list[float], psnr: float) -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare(np.array(x), np.array(y), 1.0).psnr == pytest.approx(psnr, rel=1e-12, abs=1e-9)


def test_psnr_of_several_pieces_is_that_of_all() -> None:
    n = 3 * (1 << 18)
    x = np.zeros(n)
    x[0] = TOP
    for sizes in ((1e-300, 1e300, 1.0), (1e300, 1e-300, 0.0), (1.0, 2.0, 3.0), (0.0, 0.0, 1e-320)):
        y = x + np.repeat(np.where(np.array(sizes) > 1e291, 0.0, sizes), 1 << 18)
        y[1 :: 1 << 18] += sizes
        errors = [Fraction(float(b)) - Fraction(float(a)) for a, b in zip(x[:: n // 3], y[:: n // 3], strict=True)]
        bulk = [Fraction(float(y[at + 2])) for at in range(0, n, n // 3)]
        one = [Fraction(float(y[at + 1])) for at in range(0, n, n // 3)]
        square = sum(((1 << 18) - 2) * b**2 + o**2 + e**2 for b, o, e in zip(bulk, one, errors, strict=True)) / n
        log = (math.log10(square.numerator) - math.log10(square.denominator)) / 2
        with np.errstate(all="raise"):
            found = compare(x, y, 1.0).psnr
        assert found == pytest.approx(20 * (math.log10(TOP) - log), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compare_under_settings_that_raise_finds_the_same(dtype: type) -> None:
    top = np.finfo(dtype).max
    x = np.array([0.0, top, -top, np.finfo(dtype).smallest_subnormal, np.nan, np.inf, 1.0], dtype)
    y = np.array([1.0, -top, -top, 0.0, np.nan, np.inf, np.nan], dtype)
    usual = compare(x, y, 1e-3)
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare(x, y, 1e-3) == usual
    assert usual.violations == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_values_do_not_count_and_come_back_bit_for_bit(dtype: type) -> None:
    x = np.array([1e20, 1.0, -9999.0, 3.0, 0.0, -0.0, np.nan], dtype)
    missing = (1e20, -9999.0, -0.0)
    found = are_missing(x, missing)
    assert found is not None
    assert found.tolist() == [True, False, True, False, False, True, False]
    assert are_missing(x, ()) is None
    assert extent(x, missing) == Extent(0.0, 3.0, 1.0)
    assert extent(np.full(70_000, 1e20, dtype), (1e20,)) == Extent(0.0, 0.0, 0.0, False)
    assert first_finite(x, missing) == 1.0
    assert resolve(Bound(0.5, "rel"), x, missing) == 1.5
    y = x.copy()
    y[[1, 3]] += 0.5
    assert compare(x, y, 0.5, missing=missing).ok
    for at in (0, 2, 5):
        z = y.copy()
        z[at] = np.nextafter(z[at], dtype(0.25))
        report = compare(x, z, 1e30, missing=missing)
        assert (report.violations, report.specials_changed, report.first_violation) == (0, 1, at)

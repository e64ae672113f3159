"""Cases F: offsets far above the detail, codes whose differences overflow, fields in which every value is an outlier."""

from __future__ import annotations

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE, STAGED

N = 1 << 20


def ripple(offset: float, dtype: str) -> np.ndarray:
    return (offset + np.sin(np.arange(N) / 50)).astype(dtype)


def test_f1_float32_on_an_offset_of_a_million() -> None:
    # values are 1/16 apart, so that a bound of 1e-3 has them come back exactly; measured: 3.30 and 1.06
    trips = casekit.check(ripple(1e6, "float32"), 1e-3, "abs", PRESETS)
    for trip in trips.values():
        assert trip.result.outliers == 0
        assert np.array_equal(trip.restored, ripple(1e6, "float32"))
    assert trips["fast"].ratio > 3.2
    assert trips["zigzag"].ratio > 3.2
    assert trips["planes"].ratio > 1.0  # its prediction restarts every 32 elements, and each restart costs a whole value


def test_f1_float64_on_an_offset_of_a_million_million() -> None:
    # Values are 1.2e-4 apart and come back exactly. Their codes have 59 bits, the product of value and 1/step 53, so that
    # 29 % are a step off and kept aside; measured: 1.60
    x = ripple(1e12, "float64")
    trip = casekit.check(x, 1e-6, "abs", ("fast", "zigzag"))["fast"]
    assert np.array_equal(trip.restored, x)
    assert trip.ratio > 1.5


def test_f1_float64_offset_with_a_bound_the_values_can_show() -> None:
    trip = casekit.check(ripple(1e12, "float64"), 1e-3, "abs", ("fast", "zigzag"))["fast"]  # measured: 5.48, 1.4 % outliers
    assert trip.ratio > 5
    assert trip.result.outliers < 0.02 * N


@pytest.mark.parametrize("order", ["ramp", "day and night"])
def test_f1_kelvin(order: str) -> None:
    ramp = np.linspace(263.05, 313.95, N)
    cycle = 288.5 + 25.45 * np.sin(np.arange(N) / 500)
    x = (ramp if order == "ramp" else cycle).astype(np.float32)
    trips = casekit.check(x, 1e-2, "abs", PRESETS)
    assert trips["fast"].ratio > 6  # measured: 14.1 and 6.4
    assert trips["planes"].ratio > 2
    for trip in trips.values():
        assert trip.result.outliers < 0.001 * N


@pytest.mark.parametrize("eb", [1e-5, 1e-6])
def test_f2_uniform_in_four_dimensions(eb: float) -> None:
    x = np.random.default_rng(2).uniform(-36.8, 33.6, (32,) * 4).astype(np.float32)
    for trip in casekit.check(x, eb, "abs", PRESETS).values():
        assert trip.result.outliers < 0.03 * x.size  # values near a step's edge that narrowing takes out of the bound
        assert trip.ratio > (1.3 if eb == 1e-5 else 1.1)  # the entropy of the codes allows 1.45 and 1.26


def test_f2_uniform_in_a_million() -> None:
    x = np.random.default_rng(3).uniform(-1e6, 1e6, N).astype(np.float32)
    casekit.check(x, 1e-4, "abs", PRESETS, coded=None)


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 31), ("float64", 63)])
def test_f2_codes_that_fit_with_differences_that_do_not(dtype: str, bits: int) -> None:
    # neighbours at both ends of the code type: every difference wraps around
    top = 2.0 ** (bits - 2 if dtype == "float64" else bits) * 0.95
    signs = np.where(np.arange(40_000) % 2, 1.0, -1.0)
    x = (signs * top * (1 - 1e-3 * (np.arange(40_000) // 4000 / 10))).astype(dtype)
    eb = 0.5 / (1 - 2.0**-7)  # a step of 1
    if dtype == "float64":
        eb /= 4
    trips = casekit.check(x, eb, "abs", PRESETS, coded=None)
    for trip in trips.values():
        assert trip.result.raw or trip.result.outliers == 0


def test_f2_wrapping_differences_are_coded() -> None:
    # a wrap in the middle of every eighth region, so that the archive stays coded
    x = np.where((np.arange(40_000) + 1920) // 2048 % 2, 1.0, -1.0) * 2.0e9
    for dtype in ("float32", "float64"):
        for trip in casekit.check(x.astype(dtype), 0.504, "abs", ("fast", "zigzag")).values():
            assert trip.result.outliers == 0


def test_f3_white_noise_in_which_every_value_is_an_outlier() -> None:
    x = np.random.default_rng(7).normal(size=1 << 24).astype(np.float32) * np.float32(1e20)
    trip = casekit.check(x, 1e-3, "abs", coded=False)["fast"]
    assert np.array_equal(casekit.bits(trip.restored), casekit.bits(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_f3_every_value_an_outlier_and_the_archive_coded(dtype: str) -> None:
    # runs of equal values are kept once, so that nothing falls back to raw and every side buffer must hold all of them
    x = np.repeat(np.random.default_rng(8).normal(size=20_000) * 1e30, 11).astype(dtype)
    for trip in casekit.check(x, 1e-3, "abs", PRESETS).values():
        assert trip.result.outliers == x.size
        assert trip.ratio > 5


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [8192, 8193, 5 * 8192, 40 * 8192 + 1])
def test_f3_side_buffers_grow_from_nothing(n: int, threads: int) -> None:
    """The buffer of a thread begins without room: no outlier, one, then whole chunks of them."""
    x = np.sin(np.arange(n) / 100).astype(np.float32)
    for kept in (0, 1, n // 2):
        x[n - kept :] = np.repeat(np.random.default_rng(n).normal(size=n).astype(np.float32) * np.float32(1e30), 3)[:kept]
        trip = casekit.check(x, 1e-2, "abs", wanted=(REFERENCE, FUSED, STAGED), threads=threads, coded=True)["fast"]
        assert trip.result.outliers == kept

"""Resolution of range, bound and step: every rounding goes the stated way, in exact arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from briquette_quantize.bound import largest_code, step_for, toward_zero

finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


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

"""The judges can say no: what the other tests of this folder show rests on that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import FUSED, REFERENCE, STAGED, Way, assert_bound, assert_plan, assert_same_sinks, bits, poisoned

import briquette as bq


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bound_is_judged_without_tolerance(dtype: str) -> None:
    x = np.array([0.0, 1.0, 1e6, -3.0, np.nan], dtype)
    y = x.copy()
    y[1] = np.nextafter(x[1], x.dtype.type(2))
    error = float(y[1]) - 1.0
    assert_bound(x, y, error)
    with pytest.raises(AssertionError, match="1 values miss"):
        assert_bound(x, y, math.nextafter(error, 0.0))


def test_a_rounding_error_of_the_difference_counts() -> None:
    """1e-30 away from the bound: the float64 difference is the bound itself."""
    x, y = np.array([1.0]), np.array([-1e-30])
    assert x[0] - y[0] == 1.0
    with pytest.raises(AssertionError, match="1 values miss"):
        assert_bound(x, y, 1.0)
    assert_bound(x, -y, 1.0)


@pytest.mark.parametrize("changed", [np.float32(np.inf), np.uint32(0x7FC00001).view(np.float32), np.float32(0)])
def test_a_special_value_must_keep_its_bits(changed: np.float32) -> None:
    x = np.array([1.0, np.nan], np.float32)
    y = np.array([1.0, changed], np.float32)
    with pytest.raises(AssertionError, match="a NaN or an infinity changed"):
        assert_bound(x, y, 1.0)


def test_a_poisoned_output_is_not_within_any_bound() -> None:
    x = np.ones(5, np.float32)
    with pytest.raises(AssertionError, match="5 values miss"):
        assert_bound(x, poisoned(5, np.float32), 1e30)
    assert np.isnan(poisoned(3, np.float64)).all()
    assert set(bits(poisoned(4, np.uint8)).tolist()) == {0xA5}


@pytest.mark.parametrize(("way", "claimed"), [(REFERENCE, FUSED), (STAGED, FUSED), (FUSED, STAGED)])
def test_a_plan_that_is_not_the_promised_one_is_found(way: Way, claimed: Way) -> None:
    plan = bq.Pipeline.from_preset("fast").plan("float32", way.target, way.fusion)
    assert_plan(plan, way, tuple(plan.graph.nodes))
    with pytest.raises(AssertionError):
        assert_plan(plan, claimed, tuple(plan.graph.nodes))


def test_sinks_that_differ_are_found(rng: np.random.Generator) -> None:
    def runs(region: int) -> object:
        text = bq.Pipeline.from_preset("fast").to_toml().replace("256", str(region))
        return bq.Pipeline.from_toml(text).executable("float32", "numpy", "auto")

    x: NDArray[np.float32] = np.cumsum(rng.normal(0.5, 0.1, 500)).astype(np.float32)
    assert_same_sinks([runs(256), runs(256)], x, bq.Bound(1e-3))
    with pytest.raises(AssertionError):
        assert_same_sinks([runs(256), runs(64)], x, bq.Bound(1e-3))

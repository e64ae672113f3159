"""Laws of the NumPy form."""

from __future__ import annotations

import numpy as np
import pytest
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope

from my_pack.stage import MyPack

TYPES = {"in": PortType("float32"), **MyPack().output_types({"in": PortType("float32")})}


def run(x: np.ndarray, eb: float, mode: str = "abs") -> tuple[np.ndarray, int, float]:
    """Quantize and bring back; return the values, how many were kept aside, and the absolute bound."""
    stage, kept = MyPack(), []
    state = stage.prime_fused_forward_state(PrimeContext(x, TYPES, Bound(eb, mode), x.size))
    scope = Scope(state, TYPES, x.size, 8192, lambda name, amount: kept.append(amount))
    back = stage.inverse(stage.forward({"in": x}, scope), scope)["in"]
    assert not isinstance(back, Chunked)
    return np.asarray(back), sum(kept), float(state["eb"])


def assert_bound(x: np.ndarray, y: np.ndarray, eb: float) -> None:
    finite = np.isfinite(x)
    assert np.array_equal(x[~finite].view(np.uint32), y[~finite].view(np.uint32)), "NaN and infinities come back bit for bit"
    assert (np.abs(x[finite].astype(np.float64) - y[finite].astype(np.float64)) <= eb).all()  # exact in float64


@pytest.mark.parametrize("eb", [1e-42, 1e-7, 1e-3, 0.125, 3.0, 1e30])
def test_the_bound_holds_for_all_float32(eb: float) -> None:
    x = np.random.default_rng(1).integers(0, 2**32, 50_000, np.uint32).view(np.float32)
    y, _, resolved = run(x, eb)
    assert resolved == eb
    assert_bound(x, y, eb)


def test_an_ordinary_field_keeps_little_aside() -> None:
    x = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    x[::1000] = np.nan
    y, kept, eb = run(x, 1e-3, "rel")
    assert eb <= 1e-3 * (np.nanmax(x).astype(float) - np.nanmin(x).astype(float))
    assert_bound(x, y, eb)
    assert kept == np.isnan(x).sum()  # FILL IN: what your quantizer cannot code


def test_a_constant_field_is_exact() -> None:
    x = np.full(1000, 0.1, np.float32)
    assert run(x, 1e-3, "rel")[0].tobytes() == x.tobytes()


def test_a_state_that_no_run_resolved_is_refused() -> None:
    ctx = PrimeContext(np.ones(3, np.float32), TYPES, Bound(1e-3), 3)
    good = MyPack().prime_fused_forward_state(ctx)
    for key in good:
        for bad in (None, float("nan"), -1.0, "x"):
            with pytest.raises(ArchiveError):
                MyPack().fused_params({**good, key: bad}, TYPES)  # type: ignore[dict-item]


def test_other_types_are_refused() -> None:
    with pytest.raises(PipelineError, match="float32"):
        MyPack().output_types({"in": PortType("int32")})

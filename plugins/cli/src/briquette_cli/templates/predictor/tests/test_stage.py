"""Laws of the NumPy form."""

from __future__ import annotations

import numpy as np
import pytest
from briquette.errors import PipelineError
from briquette.ports import CODE_DTYPES, PortType
from briquette.stage import Scope

from my_pack.stage import MyPack


@pytest.mark.parametrize("dtype", sorted(CODE_DTYPES))
@pytest.mark.parametrize("region", [1, 7, 128])
def test_inverse_undoes_forward_for_all_codes(dtype: str, region: int) -> None:
    stage, rng, limits = MyPack(region), np.random.default_rng(1), np.iinfo(dtype)
    types = {"in": PortType(dtype), "out": PortType(dtype)}
    for n in (0, 1, 127, 128, 1000):
        codes = rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
        scope = Scope({}, types, n, 8192 // region * region)
        out = stage.forward({"in": codes}, scope)
        assert out["out"].dtype == codes.dtype
        assert np.array_equal(stage.inverse(out, scope)["in"], codes)


def test_a_known_answer() -> None:
    """FILL IN: a few numbers that you worked out by hand."""
    codes = np.array([5, 7, 4, 4, 9], np.int32)
    scope = Scope({}, {"in": PortType("int32"), "out": PortType("int32")}, 5, 8192)
    assert MyPack(4).forward({"in": codes}, scope)["out"].tolist() == [5, 2, -3, 0, 9]


@pytest.mark.parametrize("region", [0, -1, 65_537, 2.5, "8", True])
def test_bad_parameters_are_refused(region: object) -> None:
    with pytest.raises(PipelineError, match="region"):
        MyPack(region)  # type: ignore[arg-type]


def test_values_are_refused() -> None:
    with pytest.raises(PipelineError, match="quantize first"):
        MyPack().output_types({"in": PortType("float32")})

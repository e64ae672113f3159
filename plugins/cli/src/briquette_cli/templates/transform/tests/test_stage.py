"""Laws of the NumPy form."""

from __future__ import annotations

import numpy as np
import pytest
from briquette.errors import PipelineError
from briquette.ports import CODE_DTYPES, PortType
from briquette.stage import Scope

from my_pack.stage import MyPack


@pytest.mark.parametrize("dtype", sorted(CODE_DTYPES))
@pytest.mark.parametrize("offset", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_inverse_undoes_forward_for_all_codes(dtype: str, offset: int) -> None:
    stage, rng, limits = MyPack(offset), np.random.default_rng(1), np.iinfo(dtype)
    types = {"in": PortType(dtype), "out": PortType(dtype)}
    for n in (0, 1, 1000):
        codes = rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
        codes[:2] = [limits.min, limits.max][: codes[:2].size]
        scope = Scope({}, types, n, 8192)
        out = stage.forward({"in": codes}, scope)
        assert out["out"].dtype == codes.dtype
        assert np.array_equal(stage.inverse(out, scope)["in"], codes)


def test_a_known_answer() -> None:
    """FILL IN: a few numbers that you worked out by hand."""
    codes = np.array([5, -7, 2**31 - 1], np.int32)
    scope = Scope({}, {"in": PortType("int32"), "out": PortType("int32")}, 3, 8192)
    assert MyPack(1).forward({"in": codes}, scope)["out"].tolist() == [6, -6, -(2**31)]


@pytest.mark.parametrize("offset", [2**63, 2.5, "8", True])
def test_bad_parameters_are_refused(offset: object) -> None:
    with pytest.raises(PipelineError, match="offset"):
        MyPack(offset)  # type: ignore[arg-type]


def test_values_are_refused() -> None:
    with pytest.raises(PipelineError, match="quantize first"):
        MyPack().output_types({"in": PortType("float32")})

"""Laws of the NumPy form."""

from __future__ import annotations

import numpy as np
import pytest
from briquette.errors import PipelineError
from briquette.ports import STREAM_DTYPES, PortType
from briquette.stage import Scope

from my_pack.stage import MyPack


@pytest.mark.parametrize("dtype", sorted(STREAM_DTYPES - {"bfloat16"}))
def test_inverse_undoes_forward_for_all_bytes(dtype: str) -> None:
    stage, rng, item = MyPack(), np.random.default_rng(1), np.dtype(dtype).itemsize
    types = {"in": PortType(dtype), "out": PortType(dtype)}
    for n in (0, 1, 20_011):
        stream = rng.integers(0, 256, n * item, np.uint8).view(dtype)
        scope = Scope({}, types, n, 8192)
        out = stage.forward({"in": stream}, scope)
        assert np.asarray(out["out"]).dtype == stream.dtype
        assert np.asarray(stage.inverse(out, scope)["in"]).tobytes() == stream.tobytes()


def test_a_known_answer() -> None:
    """FILL IN: a few numbers that you worked out by hand."""
    scope = Scope({}, {"in": PortType("int32"), "out": PortType("int32")}, 3, 8192)
    out = MyPack().forward({"in": np.array([1, 2, 3], np.int32)}, scope)["out"]
    assert np.asarray(out).tolist() == [3, 2, 1]


def test_coded_words_are_refused() -> None:
    with pytest.raises(PipelineError, match="takes a stream"):
        MyPack().output_types({"in": PortType("int32", "chunked")})

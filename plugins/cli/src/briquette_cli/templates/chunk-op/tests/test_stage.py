"""Laws of the NumPy form."""

from __future__ import annotations

import numpy as np
import pytest
from briquette.errors import PipelineError
from briquette.ports import STREAM_DTYPES, PortType
from briquette.stage import Scope

from my_pack.stage import MyPack


@pytest.mark.parametrize("dtype", sorted(STREAM_DTYPES - {"bfloat16"}))
@pytest.mark.parametrize("size", [4096, 8192, 16384])
def test_inverse_undoes_forward_for_all_bytes(dtype: str, size: int) -> None:
    stage, rng, item = MyPack(size), np.random.default_rng(1), np.dtype(dtype).itemsize
    types = {"in": PortType(dtype), "out": PortType(dtype)}
    for n in (0, 1, 3, size // item - 1, size // item, size // item + 1, 20_011):
        stream = rng.integers(0, 256, n * item, np.uint8).view(dtype)
        scope = Scope({}, types, n, size // item)
        out = stage.forward({"in": stream}, scope)
        assert np.asarray(out["out"]).dtype == stream.dtype
        assert np.asarray(stage.inverse(out, scope)["in"]).tobytes() == stream.tobytes()


def test_a_known_answer() -> None:
    """FILL IN: a few bytes that you worked out by hand."""
    stream = np.arange(10, dtype=np.uint8)
    scope = Scope({}, {"in": PortType("uint8"), "out": PortType("uint8")}, 10, 4096)
    out = MyPack(4096).forward({"in": stream}, scope)["out"]
    assert np.asarray(out).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 9]


@pytest.mark.parametrize("size", [0, 4095, 32768, "8192", True])
def test_bad_parameters_are_refused(size: object) -> None:
    with pytest.raises(PipelineError, match="chunk_bytes"):
        MyPack(size)  # type: ignore[arg-type]

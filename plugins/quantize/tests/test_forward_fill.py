"""Forward fill: marked codes take the one before them, region by region; a scalar loop says what is right."""

from __future__ import annotations

import os
import pickle
import secrets
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette.declare import FusionAccess
from briquette.errors import PipelineError
from briquette.ports import PortType
from briquette.stage import Scope
from briquette_quantize.forward_fill import ForwardFill


def filled(codes: np.ndarray, region: int) -> list[int]:
    """Fill one code after another."""
    mark, out = int(np.iinfo(codes.dtype).min), []
    for begin in range(0, codes.size, region):
        row = codes[begin : begin + region].tolist()
        held = next((c for c in row if c != mark), 0) if len(row) == region else None
        if held is None:  # behind a short region's end stand zeros, and the first of them counts
            held = next((c for c in [*row, 0] if c != mark), 0)
        for c in row:
            held = held if c == mark else c
            out.append(held)
    return out


def run(codes: np.ndarray, region: int) -> Any:
    types = {"in": PortType(codes.dtype.name), "out": PortType(codes.dtype.name)}
    return ForwardFill(region).forward({"in": codes}, Scope({}, types, codes.size, 8192))["out"]


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
@pytest.mark.parametrize("region", [1, 8, 100, 256])
def test_marks_take_the_code_before_them(dtype: str, region: int) -> None:
    seed = int(os.environ.get("BRIQUETTE_TEST_SEED") or secrets.randbits(32))
    print(f"BRIQUETTE_TEST_SEED={seed}")
    rng = np.random.default_rng(seed)
    mark = np.iinfo(dtype).min
    for n in (0, 1, 7, region, region + 1, 3 * region - 1, 1000):
        for share in (0.0, 0.1, 0.7, 1.0):
            codes = rng.integers(-5, 6, n).astype(dtype)
            codes[np.repeat(rng.random(n) < share, 1)] = mark
            codes[: n // 3] = mark if share else codes[: n // 3]
            before = codes.copy()
            out = run(codes, region)
            assert out.dtype == codes.dtype
            assert out.tolist() == filled(codes, region)
            assert np.array_equal(codes, before)
            assert (out != mark).all()
            assert np.array_equal(out[codes != mark], codes[codes != mark])


def test_edges_of_holes() -> None:
    mark = int(np.iinfo(np.int32).min)
    codes = np.array([mark, mark, 4, mark, 5, mark, mark, mark, mark, mark, mark, mark, mark, 7, mark, mark], np.int32)
    assert run(codes, 4).tolist() == [4, 4, 4, 4, 5, 5, 5, 5, 0, 0, 0, 0, 7, 7, 7, 7]


def test_declaration() -> None:
    stage = ForwardFill(64)
    assert (stage.fusion_spec().access, stage.fusion_spec().span) == (FusionAccess.REGION_LOCAL, 64)
    assert stage.fused_op().qualified == "::briquette_quantize::ForwardFill"
    assert pickle.loads(pickle.dumps(stage)) == stage == ForwardFill.from_parameters(stage.parameters())
    codes = np.arange(5, dtype=np.int32)
    scope = Scope({}, {"in": PortType("int32"), "out": PortType("int32")}, 5, 8192)
    assert stage.inverse({"out": codes}, scope)["in"] is codes
    for region in (0, 65_537, True, 2.0):
        with pytest.raises(PipelineError, match="must be an integer from 1"):
            ForwardFill(region)  # type: ignore[arg-type]
    for given in (PortType("float32"), PortType("uint32"), PortType("int32", "chunked")):
        with pytest.raises(PipelineError, match="takes signed 16-, 32- or 64-bit codes"):
            stage.output_types({"in": given})


@pytest.mark.parametrize("before", [(), ("in-place-quantizer",), ("lorenzo-1d",)])
def test_nothing_is_replaced_that_no_stage_keeps_aside(before: tuple[str, ...]) -> None:
    """Codes that are the mark by themselves would not come back."""
    x = np.full(600, np.iinfo(np.int32).min, np.int32)
    x[::7] = 5
    data = x.view(np.float32) if before[:1] == ("in-place-quantizer",) else x
    pipe = bq.chain(*before, "forward-fill", "lorenzo-1d", "plain-rate")
    with pytest.raises(PipelineError, match="'forward-fill' replaces a code and does not give it back"):
        pipe.compress(data, 1e-3 if data.dtype.kind == "f" else None)

"""The 1-D Lorenzo predictor against a slow reference in Python integers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from briquette.declare import FusionAccess
from briquette.errors import PipelineError
from briquette.ports import PortType
from briquette.stage import Scope
from briquette_lorenzo.lorenzo1d import Lorenzo1D

CODE_TYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64"]


def scope(stage: Lorenzo1D, dtype: str, count: int, chunk: int) -> Scope:
    types = {"in": PortType(dtype)}
    return Scope({}, {**types, **stage.output_types(types)}, count, chunk)


def forward(stage: Lorenzo1D, codes: np.ndarray, chunk: int = 8192) -> np.ndarray:
    return stage.forward({"in": codes}, scope(stage, codes.dtype.name, codes.size, chunk))["out"]


def inverse(stage: Lorenzo1D, deltas: np.ndarray, chunk: int = 8192) -> np.ndarray:
    return stage.inverse({"out": deltas}, scope(stage, deltas.dtype.name, deltas.size, chunk))["in"]


def reference(codes: np.ndarray, region: int) -> np.ndarray:
    bits = 8 * codes.itemsize
    out = []
    for i, c in enumerate(codes.tolist()):
        delta = (c - (codes[i - 1].item() if i % region else 0)) % 2**bits
        out.append(delta - 2**bits if codes.dtype.kind == "i" and delta >= 2 ** (bits - 1) else delta)
    return np.array(out, codes.dtype)


def extremes(dtype: str, n: int, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    pick = np.array([info.min, info.max, 0, 1, info.max - 1, info.min + 1], dtype)
    return np.where(
        rng.random(n) < 0.5, pick[rng.integers(0, pick.size, n)], rng.integers(-9 if info.min else 0, 9, n).astype(dtype)
    )


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("region", [1, 2, 31, 32, 100, 256])
def test_matches_the_reference_for_every_residue(region: int, dtype: str) -> None:
    stage = Lorenzo1D(region=region)
    for n in [*range(71), 255, 256, 257, 511, 512, 513]:
        codes = extremes(dtype, n, n)
        deltas = forward(stage, codes)
        assert deltas.dtype == codes.dtype
        np.testing.assert_array_equal(deltas, reference(codes, region))
        np.testing.assert_array_equal(inverse(stage, deltas), codes)


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
def test_differences_wrap(dtype: str) -> None:
    info = np.iinfo(dtype)
    codes = np.array([info.min, info.max, info.min, 0, info.min], dtype)
    deltas = forward(Lorenzo1D(), codes)
    assert deltas.tolist() == [info.min, -1, 1, info.min, info.min]
    np.testing.assert_array_equal(inverse(Lorenzo1D(), deltas), codes)


def test_pieces_join_to_the_whole() -> None:
    codes = extremes("int32", 3 * 1024 + 17)
    stage = Lorenzo1D(region=128)
    pieces = [forward(stage, codes[a : a + 1024], 1024) for a in range(0, codes.size, 1024)]
    np.testing.assert_array_equal(np.concatenate(pieces), forward(stage, codes, 1024))


def test_input_is_left_alone() -> None:
    codes = extremes("int32", 300)
    codes.flags.writeable = False
    deltas = forward(Lorenzo1D(), codes)
    deltas.flags.writeable = False
    assert inverse(Lorenzo1D(), deltas).flags.writeable


@pytest.mark.parametrize("region", [0, -1, 65_537, 2.0, "256", True, None])
def test_bad_regions_are_refused_by_value(region: object) -> None:
    with pytest.raises(PipelineError, match=f"region = {region!r}"):
        Lorenzo1D(region=region)


@pytest.mark.parametrize("given", [PortType("float32"), PortType("int8"), PortType("int32", "chunked")])
def test_what_is_no_code_is_refused(given: PortType) -> None:
    with pytest.raises(PipelineError, match="lorenzo-1d"):
        Lorenzo1D().output_types({"in": given})


def test_declaration_and_value_semantics() -> None:
    stage = Lorenzo1D(region=512)
    assert (stage.fusion_spec().access, stage.fusion_spec().span) == (FusionAccess.REGION_LOCAL, 512)
    assert stage.fused_op().qualified == "::briquette_lorenzo::Lorenzo1D"
    assert pickle.loads(pickle.dumps(stage)) == stage == Lorenzo1D.from_parameters(stage.parameters())
    assert hash(stage) == hash(Lorenzo1D(512))

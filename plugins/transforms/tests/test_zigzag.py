"""Zigzag against its definition in Python integers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from briquette.declare import FusionAccess
from briquette.errors import PipelineError
from briquette.ports import PortType
from briquette.stage import Scope
from briquette_transforms.zigzag import Zigzag


def run(direction: str, values: np.ndarray, code: str) -> np.ndarray:
    types = {"in": PortType(code)}
    scope = Scope({}, {**types, **Zigzag().output_types(types)}, values.size, 8192)
    if direction == "forward":
        return Zigzag().forward({"in": values}, scope)["out"]
    return Zigzag().inverse({"out": values}, scope)["in"]


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
def test_folds_as_defined_and_back(dtype: str) -> None:
    info = np.iinfo(dtype)
    near = list(range(-40, 41))
    codes = np.array([info.min, info.min + 1, info.max, info.max - 1, *near, *(c << 9 for c in near)], dtype)
    folded = run("forward", codes, dtype)
    assert folded.dtype == np.dtype("u" + dtype)
    assert folded.tolist() == [2 * c if c >= 0 else -2 * c - 1 for c in codes.tolist()]
    back = run("inverse", folded, dtype)
    assert back.dtype == codes.dtype
    np.testing.assert_array_equal(back, codes)


def test_every_16_bit_code() -> None:
    codes = np.arange(-32768, 32768).astype(np.int16)
    folded = run("forward", codes, "int16")
    assert np.unique(folded).size == 65_536
    np.testing.assert_array_equal(run("inverse", folded, "int16"), codes)


def test_empty_and_read_only() -> None:
    assert run("forward", np.empty(0, np.int32), "int32").size == 0
    codes = np.arange(-3, 3, dtype=np.int32)
    codes.flags.writeable = False
    folded = run("forward", codes, "int32")
    folded.flags.writeable = False
    assert run("inverse", folded, "int32").tolist() == [-3, -2, -1, 0, 1, 2]


@pytest.mark.parametrize("given", [PortType("uint32"), PortType("float32"), PortType("int8"), PortType("int32", "chunked")])
def test_anything_but_signed_codes_is_refused(given: PortType) -> None:
    with pytest.raises(PipelineError, match="zigzag"):
        Zigzag().output_types({"in": given})


def test_declaration_and_value_semantics() -> None:
    assert Zigzag().output_types({"in": PortType("int64")}) == {"out": PortType("uint64")}
    assert (Zigzag().fusion_spec().access, Zigzag().fusion_spec().span) == (FusionAccess.ELEMENTWISE, 1)
    assert Zigzag().fused_op().qualified == "::briquette_transforms::Zigzag"
    assert pickle.loads(pickle.dumps(Zigzag())) == Zigzag() == Zigzag.from_parameters({})

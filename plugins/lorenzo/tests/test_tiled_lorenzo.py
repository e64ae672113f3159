"""Tiled and N-D Lorenzo against the sum over neighbours that defines the predictor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, PipelineError
from briquette.layouts import Stretch
from briquette.ports import PortType
from briquette.stage import PrimeContext, Scope, Stage
from briquette_lorenzo.lorenzo_nd import LorenzoND
from briquette_lorenzo.tiled import TiledLorenzo

CODE_TYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64"]
EDGES = {1: (64,), 2: (8, 8), 3: (4, 4, 4)}


def residuals(field: np.ndarray) -> np.ndarray:
    """Return each element less its prediction, the alternating sum over the corner of neighbours before it; 0 outside."""
    padded = np.pad(field.view(f"u{field.itemsize}"), [(1, 0)] * field.ndim)
    total = np.zeros_like(padded[tuple(slice(1, None) for _ in field.shape)])
    for back in itertools.product((0, 1), repeat=field.ndim):
        part = padded[tuple(slice(1 - b, n + 1 - b) for b, n in zip(back, field.shape, strict=True))]
        total = total - part if sum(back) % 2 else total + part
    return total.view(field.dtype)


def scope(dtype: str, count: int, state: dict[str, int], shape: tuple[int, ...]) -> Scope:
    types = {"in": PortType(dtype), "out": PortType(dtype)}
    return Scope(state, types, count, 8192, stretch=Stretch(shape, 0, count))


def drawn(dtype: str, count: int) -> np.ndarray:
    info = np.iinfo(dtype)
    codes = np.random.default_rng(count).integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    codes[::7] = info.max
    return codes


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dtype", CODE_TYPES)
def test_tiles_are_predicted_by_their_own_neighbours(dtype: str, axes: int) -> None:
    stage, codes = TiledLorenzo(), drawn(dtype, 640)
    here = scope(dtype, codes.size, {"axes": axes}, codes.shape)
    out = stage.forward({"in": codes}, here)["out"]
    for tile, found in zip(codes.reshape(-1, *EDGES[axes]), out.reshape(-1, *EDGES[axes]), strict=True):
        np.testing.assert_array_equal(found, residuals(tile))
    assert out.dtype == codes.dtype
    np.testing.assert_array_equal(stage.inverse({"out": out}, here)["in"], codes)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_short_last_tile_is_filled_up_with_zeros(axes: int) -> None:
    for count in (*range(66), 127, 129):
        codes = drawn("int32", count) if count else np.empty(0, np.int32)
        here = scope("int32", count, {"axes": axes}, codes.shape)
        out = TiledLorenzo().forward({"in": codes}, here)["out"]
        whole = scope("int32", count + -count % 64, {"axes": axes}, codes.shape)
        filled = TiledLorenzo().forward({"in": np.pad(codes, (0, -count % 64))}, whole)["out"]
        np.testing.assert_array_equal(out, filled[:count])
        np.testing.assert_array_equal(TiledLorenzo().inverse({"out": out}, here)["in"], codes)


def test_axes_are_those_of_the_array_unless_given() -> None:
    def primed(axes: int, shape: tuple[int, ...]) -> object:
        return TiledLorenzo(axes).prime_fused_forward_state(PrimeContext(None, {}, None, 1, shape=shape))

    assert [primed(0, s) for s in ((9,), (9, 9), (9, 9, 9), (9, 1, 9), (2, 9, 9, 9))] == [{"axes": n} for n in (1, 2, 3, 2, 3)]
    assert [primed(2, s) for s in ((9,), (9, 9), (9, 9, 9))] == [{"axes": n} for n in (1, 2, 2)]


@pytest.mark.parametrize("axes", [0, 4, -1, True, 1.0, "1", None])
def test_a_state_that_no_run_leaves_is_refused(axes: object) -> None:
    with pytest.raises(ArchiveError, match="axes = "):
        TiledLorenzo().inverse({"out": np.zeros(64, np.int32)}, scope("int32", 64, {"axes": axes}, (64,)))  # type: ignore[dict-item]
    with pytest.raises(ArchiveError, match="axes"):
        TiledLorenzo().fused_params({}, {})


@pytest.mark.parametrize("shape", [(), (1,), (40,), (9, 7), (1, 9, 1, 7), (3, 4, 5), (2, 3, 1, 4, 5)])
@pytest.mark.parametrize("dtype", CODE_TYPES)
def test_whole_fields_are_predicted_along_every_axis(dtype: str, shape: tuple[int, ...]) -> None:
    codes = drawn(dtype, int(np.prod(shape, dtype=int)))
    here = scope(dtype, codes.size, {}, shape)
    out = LorenzoND().forward({"in": codes}, here)["out"]
    squeezed = codes.reshape([n for n in shape if n != 1] or [1])
    np.testing.assert_array_equal(out, residuals(squeezed).reshape(-1))
    np.testing.assert_array_equal(LorenzoND().inverse({"out": out}, here)["in"], codes)
    last = LorenzoND(1).forward({"in": codes}, here)["out"]
    for row, found in zip(squeezed.reshape(-1, squeezed.shape[-1]), last.reshape(-1, squeezed.shape[-1]), strict=True):
        np.testing.assert_array_equal(found, residuals(row))


def test_a_field_in_another_order_is_refused() -> None:
    with pytest.raises(PipelineError, match="put it before"):
        LorenzoND().forward({"in": np.zeros(64, np.int32)}, scope("int32", 64, {}, (9, 5)))


@pytest.mark.parametrize("cls", [TiledLorenzo, LorenzoND])
def test_declarations(cls: type[Stage]) -> None:
    stage = cls.from_parameters({"axes": 2})
    assert stage.reads_shape
    assert stage.parameters() == {"axes": 2}
    with pytest.raises(PipelineError, match="axes = -1"):
        cls.from_parameters({"axes": -1})
    with pytest.raises(PipelineError, match="quantize first"):
        stage.output_types({"in": PortType("float64")})
    spec = stage.fusion_spec()
    expected = (FusionAccess.REGION_LOCAL, 64, "") if cls is TiledLorenzo else (FusionAccess.UNFUSABLE, 1, spec.reason)
    assert (spec.access, spec.span, spec.reason) == expected
    assert spec.fusable is not bool(spec.reason)

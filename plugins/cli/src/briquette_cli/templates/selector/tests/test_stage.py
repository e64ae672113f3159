"""Laws of the NumPy form."""

from __future__ import annotations

import briquette as bq
import numpy as np
import pytest
from briquette import discovery
from briquette.errors import PipelineError
from briquette.ports import PortType
from briquette.stage import Scope, Tail

from cases import SPAN


def stage(tile: int = SPAN) -> bq.Stage:
    return discovery.registry().stage_class("my-pack").from_parameters({"tile": tile})


def bits_needed(codes: np.ndarray) -> np.ndarray:
    """A coder's cost for the tests: the bits of the largest magnitude of each 32 codes."""
    rows = np.pad(codes, (0, -codes.size % 32)).reshape(-1, 32)
    wide = np.maximum(rows.max(axis=1), -(rows.min(axis=1) + 1) if rows.dtype.kind == "i" else 0)
    return np.array([int(value).bit_length() for value in wide], np.int64)


def scope_of(dtype: str, n: int, tile: int) -> Scope:
    types = {"in": PortType(dtype)}
    return Scope({}, {**types, **stage(tile).output_types(types)}, n, 8192, tail=Tail(32, bits_needed))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("tile", [32, 256])
def test_inverse_undoes_forward_for_all_codes(dtype: str, tile: int) -> None:
    rng, limits = np.random.default_rng(1), np.iinfo(dtype)
    for n in (0, 1, 255, 256, 257, 10_000):
        level = np.repeat(rng.integers(limits.min, limits.max, n // 1000 + 1, dtype, endpoint=True), 1000)[:n]
        for codes in (level, level + rng.integers(0, 9, n, dtype)):
            scope = scope_of(dtype, n, tile)
            out = stage(tile).forward({"in": codes}, scope)
            assert np.array_equal(stage(tile).inverse(out, scope)["in"], codes)


def test_every_mode_is_chosen_where_it_is_cheaper() -> None:
    """FILL IN: tiles of which you know the cheapest mode."""
    codes = np.concatenate([np.arange(SPAN), np.full(SPAN, 1 << 20)]).astype(np.int32)
    out = stage().forward({"in": codes}, scope_of("int32", codes.size, SPAN))
    assert np.array_equal(out["out"], np.concatenate([np.arange(SPAN), np.zeros(SPAN)]))


@pytest.mark.parametrize("tile", [0, 31, 48, 65_568, 2.5, True])
def test_bad_parameters_are_refused(tile: object) -> None:
    with pytest.raises(PipelineError, match="tile"):
        discovery.registry().stage_class("my-pack").from_parameters({"tile": tile})


def test_values_are_refused() -> None:
    with pytest.raises(PipelineError, match="quantize first"):
        stage().output_types({"in": PortType("float32")})

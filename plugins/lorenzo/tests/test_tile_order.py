"""The order of tiles against a slow reference, and what a layout promises about places and ranges."""

from __future__ import annotations

import itertools
import math
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from briquette.declare import FusionAccess
from briquette.errors import PipelineError
from briquette.layouts import Lengths, Stretch
from briquette.ports import PortType
from briquette.stage import Scope
from briquette_lorenzo._tiles import TileLayout, tile_axes
from briquette_lorenzo.tileorder import TileOrder

SHAPES = [
    (1,), (5,), (64,), (65,), (200,), (8, 8), (7, 9), (16, 1), (1, 9), (17, 3), (3, 50), (4, 4, 4), (5, 6, 7), (1, 20, 1, 9),
    (2, 5, 6, 9), (3, 1, 20), (2, 3, 2, 5, 6), (),
]  # fmt: skip
EDGES = {1: (64,), 2: (8, 8), 3: (4, 4, 4)}


def slow(shape: tuple[int, ...], axes: int) -> list[tuple[int, bool]]:
    """Return for each laid-out element which of the array it is, and whether not as padding, straight from the format page."""
    long = [length for length in shape if length != 1]
    axes = max(1, min(axes or 3, len(long)))
    tiled = long[len(long) - axes :] or [1]
    batch, edges = math.prod(long[: len(long) - axes]), EDGES[axes]
    found = []
    for b in range(batch):
        for tile in itertools.product(*(range(-(-n // e)) for n, e in zip(tiled, edges, strict=True))):
            for inner in itertools.product(*map(range, edges)):
                want = [t * e + i for t, e, i in zip(tile, edges, inner, strict=True)]
                have = [min(w, n - 1) for w, n in zip(want, tiled, strict=True)]
                at = 0
                for h, n in zip(have, tiled, strict=True):
                    at = at * n + h
                found.append((b * math.prod(tiled) + at, want == have))
    return found


def laid(shape: tuple[int, ...], axes: int = 0) -> TileLayout:
    return TileOrder(axes).layout(shape)


@pytest.mark.parametrize("axes", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_are_those_of_the_format_page(shape: tuple[int, ...], axes: int) -> None:
    layout, expected = laid(shape, axes), slow(shape, axes)
    place, own = layout.places(0, layout.count)
    assert layout.count == len(expected)
    assert list(zip(place.tolist(), own.tolist(), strict=True)) == expected
    codes = np.random.default_rng(1).integers(0, 2**31, math.prod(shape)).astype(np.int32)
    np.testing.assert_array_equal(layout.gather(codes), codes[place])
    np.testing.assert_array_equal(layout.scatter(codes[place]), codes)
    for begin in range(0, layout.count, 37):
        part = layout.places(begin, min(begin + 50, layout.count))
        assert list(zip(*(p.tolist() for p in part), strict=True)) == expected[begin : begin + 50]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_part_of_the_array_lies_in_the_range_that_covers_it(shape: tuple[int, ...]) -> None:
    rng, count = np.random.default_rng(2), math.prod(shape)
    for axes in range(4):
        layout = laid(shape, axes)
        for _ in range(40):
            begin, end = sorted(rng.choice(count + 1, 2, replace=False).tolist())
            first, last = layout.covering(begin, end)
            assert 0 <= first < last <= layout.count
            place, own = layout.places(first, last)
            assert set(range(begin, end)) <= set(place[own].tolist())
        assert layout.covering(0, count) == (0, layout.count)


def test_the_range_is_no_wider_than_rows_of_tiles() -> None:
    assert laid((800, 640)).covering(640 * 9, 640 * 10) == (80 * 64, 2 * 80 * 64)
    assert laid((800, 640)).covering(640 * 9 + 17, 640 * 9 + 30) == ((80 + 2) * 64, (80 + 4) * 64)
    assert laid((1 << 20,)).covering(1000, 1001) == (15 * 64, 16 * 64)


def test_stretches_are_whole_chunks_of_what_is_laid_out() -> None:
    graph: Any = SimpleNamespace(layout="tile-order", nodes={"tile-order": TileOrder()}, behind={"coder"})
    lengths = Lengths(graph, 256)
    of = lengths.stretch((80, 40), 0, 256)
    assert (of.laid_begin, of.laid_end) == (0, 512)  # 7 rows are one row of tiles: 320 elements
    assert (lengths.elements(("tile-order", "out"), of), lengths.elements(("head", "codes"), of)) == (512, 256)
    assert lengths.place(("coder", "out"), of) == (0, 512, 3200)
    assert (lengths.reads("tile-order", of), lengths.reads("coder", of), lengths.chunks(("coder", "out"), of)) == (256, 512, 2)
    assert lengths.stretch((80, 40)).whole
    assert lengths.of(9) == lengths.stretch((9,))
    assert lengths.stretch((0, 40)) == Stretch((0, 40), 0, 0)


def test_a_part_is_given_back_from_its_tiles_alone() -> None:
    stage, shape, chunk = TileOrder(), (61, 53), 512
    codes = np.arange(61 * 53, dtype=np.int32)
    layout = stage.layout(shape)
    out = layout.gather(codes)
    for first in range(7):
        begin, end = first * chunk, min((first + 1) * chunk, codes.size)
        low, high = layout.covering(begin, end)
        of = Stretch(shape, begin, end, layout, low, high)
        scope = Scope({}, {"in": PortType("int32"), "out": PortType("int32")}, end - begin, chunk, stretch=of)
        back = stage.inverse({"out": out[low:high]}, scope)["in"]
        np.testing.assert_array_equal(back, codes[begin:end])


@pytest.mark.parametrize("axes", [-1, 4, True, 2.0, "2", None])
def test_what_no_tile_has_is_refused(axes: object) -> None:
    with pytest.raises(PipelineError, match="axes = "):
        TileOrder(axes)  # type: ignore[arg-type]


def test_declaration() -> None:
    spec = TileOrder().fusion_spec()
    assert (spec.access, spec.span) == (FusionAccess.LAYOUT, 64)
    assert pickle.loads(pickle.dumps(TileOrder(2))) == TileOrder(2) != TileOrder()
    assert TileOrder().reads_shape
    with pytest.raises(PipelineError, match="quantize first"):
        TileOrder().output_types({"in": PortType("float32")})
    assert [tile_axes(s, 0) for s in ((), (1,), (9,), (9, 1), (9, 2), (2, 3, 4), (2, 3, 4, 5))] == [1, 1, 1, 1, 2, 3, 3]

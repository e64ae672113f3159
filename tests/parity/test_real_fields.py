"""Real fields: the bound, specials, and one archive and one reconstruction whatever runs them, on however many threads."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import (
    FUSED,
    PRESETS,
    REFERENCE,
    STAGED,
    WAYS,
    FreshReader,
    assert_bound,
    assert_plan,
    bits,
    compressed,
    programs,
    restored,
    sha256,
)

import briquette as bq

RELATIVE = (1e-2, 1e-3, 1e-4, 1e-6)
THREADS = (1, 2, 5)
Ran = list[tuple[str, tuple[str, ...]]]


def assert_resolved(eb: float | None, relative: float, x: NDArray[Any]) -> float:
    """The stored bound is the range of the finite values times the relative one, rounded down by hardly anything."""
    finite = x[np.isfinite(x)]
    exact = Fraction(relative) * (Fraction(float(finite.max())) - Fraction(float(finite.min())))
    assert eb is not None
    assert exact * (1 - Fraction(1, 2**50)) <= Fraction(eb) <= exact
    return eb


def assert_parity(x: NDArray[Any], eb: float, mode: str, preset: str, fresh: FreshReader, ran: Ran) -> float:
    """Compress and decompress in every way; return the absolute bound."""
    nodes = PRESETS[preset]
    first = compressed(x, eb, mode, preset, REFERENCE)
    assert not first.raw
    assert_plan(first.plan, REFERENCE, nodes)
    blob = bytes(first.archive)
    back = restored(blob, x, REFERENCE).array
    assert first.eb is not None
    assert_bound(x, back, first.eb)
    for way in (STAGED, FUSED):
        for threads in THREADS:
            ran.clear()
            coded = compressed(x, eb, mode, preset, way, threads)
            assert coded.archive == blob, (way, threads)
            assert_plan(coded.plan, way, nodes)
            decoded = restored(blob, x, way, threads)
            assert np.array_equal(bits(decoded.array), bits(back)), (way, threads)
            assert_plan(decoded.plan, way, nodes)
            assert ran == programs(way, nodes, "forward") + programs(way, nodes, "inverse")
    for way in (REFERENCE, FUSED):
        said = fresh.read(blob, way)
        assert (said["dtype"], said["shape"], said["sha256"]) == (x.dtype.str, list(x.shape), sha256(back))
        assert (said["groups"], said["launches"]) == (([list(nodes)], 1) if way == FUSED else ([], 0))
    return first.eb


def assert_parity_at_all_bounds(x: NDArray[Any], preset: str, fresh: FreshReader, ran: Ran) -> None:
    for relative in RELATIVE:
        eb = assert_resolved(assert_parity(x, relative, "rel", preset, fresh, ran), relative, x)
        assert assert_parity(x, eb, "abs", preset, fresh, ran) == eb


@pytest.mark.parametrize("preset", PRESETS)
def test_bundled_field(bundled_field: Path, preset: str, fresh: FreshReader, ran: Ran) -> None:
    assert_parity_at_all_bounds(np.load(bundled_field), preset, fresh, ran)


@pytest.mark.parametrize("preset", PRESETS)
def test_corpus_field(corpus_field: Path, preset: str, bundled_fields: tuple[Path, ...], fresh: FreshReader, ran: Ran) -> None:
    twin = next((path for path in bundled_fields if path.name == corpus_field.name), None)
    if twin is not None:  # test_bundled_field runs it
        assert twin.read_bytes() == corpus_field.read_bytes()
        return
    assert_parity_at_all_bounds(np.load(corpus_field), preset, fresh, ran)


@pytest.fixture(scope="module")
def long_field(bundled_fields: tuple[Path, ...]) -> NDArray[Any]:
    """The single-precision fields one after another, thrice: three blocks of 64 chunks, so that decoding has ranges to share."""
    parts = [np.load(path).reshape(-1) for path in bundled_fields if path.stem.endswith("f32")]
    return np.tile(np.concatenate(parts), 3)[: 8192 * 150 + 77]


@pytest.mark.parametrize("preset", PRESETS)
def test_threads_share_several_blocks(long_field: NDArray[Any], preset: str) -> None:
    assert long_field.size > 8192 * 129
    first = compressed(long_field, 1e-2, "abs", preset, REFERENCE)
    blob = bytes(first.archive)
    assert not first.raw
    back = restored(blob, long_field, REFERENCE).array
    assert_bound(long_field, back, 1e-2)
    for way in WAYS:
        for threads in (1, 2, 3, 5):
            assert compressed(long_field, 1e-2, "abs", preset, way, threads).archive == blob, (way, threads)
            decoded = restored(blob, long_field, way, threads)
            assert np.array_equal(bits(decoded.array), bits(back)), (way, threads)
            assert_plan(decoded.plan, way, PRESETS[preset])


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_nothing_of_an_output_shows_in_the_result(bundled_fields: tuple[Path, ...], way: Any) -> None:
    """Outputs with other contents beforehand, and none at all, give the same bytes."""
    x = np.load(next(path for path in bundled_fields if path.stem == "ocean_sst_nemo_f32"))
    options = {"target": way.target, "fusion": way.fusion, "threads": 2}
    blob = bq.compress(x, 1e-3, "rel", **options)
    back = bq.decompress(blob, **options)
    for fill in (0x00, 0x5A, 0xFF):
        room = bytearray([fill]) * bq.max_archive_bytes(x)
        assert bq.compress(x, 1e-3, "rel", out=room, **options) == blob
        out = np.full(x.nbytes, fill, np.uint8).view(x.dtype).reshape(x.shape)
        assert bq.decompress(blob, out=out, **options) is out
        assert np.array_equal(bits(out), bits(back))

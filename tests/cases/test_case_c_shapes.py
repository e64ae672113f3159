"""Cases C: thin, tiny and empty shapes, and data that do not compress."""

from __future__ import annotations

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE

import briquette as bq


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 121, 261), (121, 1, 261), (121, 261, 1), (1, 1, 1), (1,)], ids=str)
def test_c2_thin_shapes(shape: tuple[int, ...], dtype: str) -> None:
    x = np.sin(np.arange(int(np.prod(shape))) / 30).astype(dtype).reshape(shape)
    for mode, eb in (("abs", 1e-3), ("rel", 1e-3)):
        casekit.check(x, eb, mode, PRESETS, coded=x.size > 1)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2), (), (1,)], ids=str)
def test_c4_empty_and_single(shape: tuple[int, ...], order: str) -> None:
    for kind in ("f4", "f8"):
        x = np.full(shape, 2.75, order + kind)
        for mode in ("abs", "rel"):
            for preset in PRESETS:
                for way in casekit.ways((REFERENCE, FUSED)):
                    blob = bq.compress(x, 1e-3, mode, pipeline=preset, target=way.target, fusion=way.fusion)
                    y = bq.decompress(blob, target=way.target)
                    assert isinstance(y, np.ndarray)
                    casekit.assert_bound(x, y, 1e-3)
                    assert y.flags.writeable
                    assert bq.info(blob)["shape"] == list(shape)
                    assert bq.verify(blob, x).ok


def test_c4_a_bad_bound_is_refused_for_empty_arrays_too() -> None:
    with pytest.raises(bq.BriquetteError, match="-1"):
        bq.compress(np.empty(0, np.float32), -1)
    with pytest.raises(bq.BriquetteError, match="needs an error bound"):
        bq.compress(np.empty(0, np.float32))


NOISE = {
    "uniform float64 (128,128,128), rel 1e-16": (lambda r: r.random((128, 128, 128)), 1e-16, "rel"),
    "white noise float32, abs 1e-7": (lambda r: r.normal(size=1 << 20).astype(np.float32), 1e-7, "abs"),
    "random bytes as float32": (lambda r: r.integers(0, 256, 1 << 22, dtype=np.uint8).view(np.float32), 1e-3, "abs"),
    "random bytes as float64": (lambda r: r.integers(0, 256, 1 << 22, dtype=np.uint8).view(np.float64), 1e-3, "rel"),
}


@pytest.mark.parametrize("name", NOISE)
def test_c5_never_larger_than_the_input_and_1_kib(name: str) -> None:
    make, eb, mode = NOISE[name]
    x = make(np.random.default_rng(5))
    with np.errstate(invalid="ignore"):
        trips = casekit.check(x, eb, mode, ("fast", "planes"), coded=None)
    for trip in trips.values():
        assert len(trip.blob) <= x.nbytes + 1024
        assert trip.result.raw or len(trip.blob) < x.nbytes


@pytest.mark.parametrize("n", [*range(1, 40), 100, 255, 8191, 8193])
def test_c5_small_incompressible_arrays(n: int) -> None:
    x = np.random.default_rng(n).integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for way in casekit.ways((REFERENCE, FUSED)):
        trip = casekit.round_trip(x, 1e-9, "abs", "planes", way)
        casekit.assert_bound(x, trip.restored, 1e-9)
        assert len(trip.blob) <= x.nbytes + 1024


def test_c5_the_room_that_is_stated_is_enough_for_large_arrays() -> None:
    # the checksums of raw data grow with them, past a kilobyte from 2**26 elements on
    x = np.frombuffer(np.random.default_rng(0).bytes(1 << 20), np.float32)
    x = np.broadcast_to(x, (1 << 8, x.size)).reshape(-1)  # 2**26 elements, 256 MiB
    blob = bq.compress(x, 1e-9, out=bytearray(bq.max_archive_bytes(x)))
    assert bq.info(blob)["raw"]
    assert x.nbytes + 1024 < len(blob) <= bq.max_archive_bytes(x)

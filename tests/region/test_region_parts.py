"""A part is the same slice of the whole: every preset, target and mode, at every kind of edge.

The reference is the full decode by the NumPy target; that parts of it are within the bound follows, and is not asserted again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery

CHUNK = 8192
BLOCK = 64 * CHUNK
PRESETS = ("fast", "planes", "zigzag", "adaptive")
WAYS = (("numpy", "auto"), ("numpy", "off"), ("host", "auto"), ("host", "off"))

pytestmark = pytest.mark.usefixtures("host")


def field(n: int, dtype: str) -> NDArray[Any]:
    """A smooth field with scattered and clustered outliers; chunk 3 has none, chunk 4 nothing else."""
    rng = np.random.default_rng(n)
    x = np.cumsum(rng.standard_normal(n)).astype(dtype)
    x[rng.integers(0, n, n // 500)] = rng.choice(np.array([np.nan, np.inf, -np.inf, 2e37], dtype), n // 500)
    x[3 * CHUNK : 4 * CHUNK] = 1.5
    x[4 * CHUNK : 5 * CHUNK] = np.nan
    x[-5:] = np.inf
    return x


@cache
def archived(preset: str, dtype: str, n: int = BLOCK + 2 * CHUNK + 777) -> tuple[bytes, NDArray[Any]]:
    """An archive of more than a block, and its full decode."""
    blob = bytes(bq.compress(field(n, dtype), 1e-3, pipeline=preset, target="numpy"))
    assert not bq.info(blob)["raw"]
    return blob, bq.decompress(blob, target="numpy")


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


EDGES = [
    *[slice(k * CHUNK + a, k * CHUNK + b) for k in (1, 64) for a, b in ((0, 1), (-1, 0), (-1, 1), (0, CHUNK), (1, CHUNK - 1))],
    slice(4 * CHUNK + 10, 4 * CHUNK + 11),  # a chunk of outliers
    slice(3 * CHUNK, 4 * CHUNK),  # one without
    slice(BLOCK - 3, BLOCK + 3),
    slice(0, 1),
    slice(-1, None),
    slice(-700, -3),
    slice(-778, None),
    slice(None, None),
    slice(None),
    slice(None, -BLOCK),
    slice(7, 7),
    slice(9, 3),
    slice(10**12, None),
    slice(-(10**12), 5),
    slice(BLOCK, 10**30),
    slice(np.int64(5), np.uint8(9)),
]


@pytest.mark.parametrize(("target", "fusion"), WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_part_is_the_slice_of_the_whole(preset: str, dtype: str, target: str, fusion: str, rng: np.random.Generator) -> None:
    blob, whole = archived(preset, dtype)
    n = whole.size
    parts = list(EDGES)
    for _ in range(25):
        begin = int(rng.integers(0, n))
        parts.append(slice(begin, begin + int(rng.choice([1, 2, 33, 1000, CHUNK, 3 * CHUNK]))))
    parts += [slice(*sorted(rng.integers(-n, n, 2).tolist())) for _ in range(3)]
    for part in parts:
        threads = int(rng.integers(1, 4))
        for name in ("flat", "region"):
            found = bq.decompress(blob, target=target, fusion=fusion, threads=threads, **{name: part})
            assert same(found, whole[part]), (name, part)
            assert found.flags.c_contiguous
            assert found.flags.writeable


@pytest.mark.parametrize("shape", [(41, 37, 29), (3, 50_000), (30_011, 2, 1), (1, 1, 40_000)])
@pytest.mark.parametrize("order", ["<", ">"])
def test_regions_run_along_the_leading_axis(shape: tuple[int, ...], order: str, rng: np.random.Generator) -> None:
    x = field(int(np.prod(shape)), "float32").reshape(shape).astype(f"{order}f4")
    blob = bq.compress(x, 1e-3)
    whole = bq.decompress(blob)
    for _ in range(12):
        begin, end = (int(v) for v in rng.integers(-shape[0] - 1, shape[0] + 2, 2))
        found = bq.decompress(blob, region=slice(begin, end))
        assert same(found, whole[begin:end]), (begin, end)
        assert found.dtype.byteorder == whole.dtype.byteorder
        out = np.full(found.shape, 7, whole.dtype)
        assert bq.decompress(blob, region=slice(begin, end), out=out) is out
        assert same(out, found)
        a, b = (int(v) for v in rng.integers(0, x.size + 1, 2))
        assert same(bq.decompress(blob, flat=slice(a, b)), whole.reshape(-1)[a:b])


@pytest.mark.parametrize(
    ("part", "chunks"), [(slice(CHUNK, 3 * CHUNK), True), (slice(5, CHUNK + 9), False), (slice(8, 8), False)]
)
@pytest.mark.parametrize("target", ["numpy", "host"])
def test_out_is_filled_and_nothing_beside_it(part: slice, chunks: bool, target: str) -> None:
    blob, whole = archived("fast", "float32")
    room = np.full(part.stop - part.start + 20, -1.25, np.float32)
    out = room[10:-10]
    assert bq.decompress(blob, flat=part, out=out, target=target) is out
    assert same(out.copy(), whole[part])
    assert (room[:10] == -1.25).all()
    assert (room[-10:] == -1.25).all()


def test_an_out_of_another_shape_is_refused() -> None:
    blob, _ = archived("fast", "float32")
    with pytest.raises(bq.BriquetteError, match=r"out= is float32 of shape \(9,\), the part is float32 of shape \(10,\)"):
        bq.decompress(blob, flat=slice(0, 10), out=np.empty(9, np.float32))


def test_a_small_part_does_not_keep_its_chunks() -> None:
    blob, _ = archived("fast", "float32")
    found = bq.decompress(blob, flat=slice(100, 110))
    base = found.base
    assert base is None or base.nbytes < CHUNK


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_archives_at_any_address(offset: int) -> None:
    blob, whole = archived("planes", "float64")
    room = bytearray(offset) + blob
    for part in (slice(5, 20), slice(BLOCK - 9, BLOCK + 9)):
        for target in ("numpy", "host"):
            assert same(bq.decompress(memoryview(room)[offset:], flat=part, target=target), whole[part])


def test_raw_archives(rng: np.random.Generator) -> None:
    for dtype in ("<f4", ">f4", "<f8"):
        x = rng.standard_normal((300, 2000)).astype(dtype)
        blob = bq.compress(x, 1e-30)
        assert bq.info(blob)["raw"]
        for _ in range(20):
            a, b = (int(v) for v in rng.integers(-310, 310, 2))
            assert same(bq.decompress(blob, region=slice(a, b)), x[a:b])
            c, d = a * 1999, b * 1999
            assert same(bq.decompress(blob, flat=slice(c, d)), x.reshape(-1)[c:d])
        out = np.zeros((2, 2000), dtype)
        assert bq.decompress(blob, region=slice(5, 7), out=out) is out
        assert same(out, x[5:7])


def test_lossless_chains_and_streams_without_a_coder() -> None:
    def stage(name: str, **params: Any) -> bq.Stage:
        return discovery.registry().stage_class(name).from_parameters(params)

    codes = np.cumsum(np.random.default_rng(1).integers(-9, 9, BLOCK + 5)).astype(np.int64)
    lossless = bq.chain(stage("lorenzo-1d", region=96), stage("plain-rate", segment=96))
    streams = bq.chain(stage("linear-quantizer", code_type="int16"), stage("lorenzo-1d"))
    values = (np.sin(np.arange(BLOCK + 9000) / 500) * 100).astype(np.float32)
    values[::7919] = np.nan
    for pipe, x, eb in ((lossless, codes, None), (streams, values, 1e-2)):
        blob = bytes(pipe.compress(x, eb))
        assert not bq.info(blob)["raw"]
        whole = bq.decompress(blob, target="numpy")
        for target, fusion in WAYS:
            for part in (slice(0, 3), slice(8063, 8066), slice(8191, 8193), slice(BLOCK - 1, None), slice(100_000, 200_001)):
                assert same(bq.decompress(blob, flat=part, target=target, fusion=fusion), whole[part]), (target, fusion, part)


# -- arrays without much to slice --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5, 0, 2), (2**40, 0)])
def test_arrays_without_elements(shape: tuple[int, ...]) -> None:
    blob = bq.compress(np.zeros(shape, np.float32), 1e-3)
    for part in (slice(0, 2), slice(-1, None), slice(None)):
        begin, end, _ = part.indices(shape[0])
        assert bq.decompress(blob, region=part).shape == (end - begin, *shape[1:])
        assert bq.decompress(blob, flat=part).shape == (0,)


def test_a_0d_array_has_no_leading_axis() -> None:
    blob = bq.compress(np.array(2.5), 1e-3)
    with pytest.raises(bq.BriquetteError, match=r"0-d array has no axis for region=; leave it out, or use flat=slice\(0, 1\)"):
        bq.decompress(blob, region=slice(0, 1))
    assert bq.decompress(blob, flat=slice(0, 1)).tolist() == [2.5]
    assert bq.decompress(blob, flat=slice(1, None)).shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"region": slice(0, 10, 2)}, r"has step 2; only steps of 1 are decoded, so slice the result with the step"),
        ({"flat": slice(10, 0, -1)}, r"has step -1"),
        ({"flat": slice(0, 10, 0)}, r"cannot slice anything"),
        ({"region": slice("a", None)}, r"cannot slice anything"),
        ({"flat": slice(0, 1.5)}, r"cannot slice anything"),
        ({"region": 5}, r"region=5 is no slice; write region=slice\(start, stop\)"),
        ({"region": (slice(0, 2), slice(0, 2))}, r"is no slice; .*; slice the other axes of the result"),
        ({"region": slice(0, 2), "flat": slice(0, 2)}, r"give one of them"),
    ],
)
def test_what_is_no_part_is_refused_with_a_remedy(options: dict[str, Any], message: str) -> None:
    for x in (np.zeros((40, 50), np.float32), np.zeros(20_000, np.float32)):
        with pytest.raises(bq.BriquetteError, match=message):
            bq.decompress(bq.compress(x, 1e-3), **options)

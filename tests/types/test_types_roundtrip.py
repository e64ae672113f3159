"""Every element type through every preset: archives alike on every target, the bound in exact arithmetic, ends and specials."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.ports import numpy_dtype

pytest.importorskip("ml_dtypes", reason="bfloat16 comes from ml_dtypes")

PRESETS = ("fast", "planes", "zigzag", "adaptive", "masked", "archive")
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
CHUNK = 8192
REFERENCE, FUSED, STAGED = ("numpy", "off"), ("host", "force"), ("host", "off")


def ways(*wanted: tuple[str, str]) -> list[tuple[str, str]]:
    missing = discovery.registry().target("host").unavailable()
    return [way for way in wanted if way[0] == "numpy" or not missing]


def field(dtype: str, n: int, seed: int = 0) -> NDArray[Any]:
    """Something smooth over about a tenth of what the type shows, with specials or the type's ends in it."""
    rng, kind = np.random.default_rng(seed + n), numpy_dtype(dtype)
    walk = np.cumsum(rng.standard_normal(n))
    if dtype == "bool":
        return walk > np.median(walk) if n else np.zeros(0, bool)
    if dtype in FLOATS:
        x = (walk / 8).astype(np.float64).astype(kind)
        if n > 40:
            x[[5, n // 2, n - 1]] = [np.nan, np.inf, -np.inf]
            x[20] = -0.0
            bits = x.view(f"u{kind.itemsize}")
            bits[30] = bits[5] + 1  # another NaN
        return x
    ends = np.iinfo(kind)
    scaled = walk / max(1.0, float(np.abs(walk).max(initial=1.0))) * (float(ends.max) / 10)
    middle = float(ends.max) / 4 if kind.kind == "u" else 0.0
    x = np.rint(scaled + middle).astype(kind)
    if n > 40:
        x[[3, 4, 5, n // 2, n - 1]] = [ends.min, ends.max, ends.min, ends.max, ends.min]
    return x


def exact(x: NDArray[Any]) -> list[Any]:
    """The values as numbers without rounding."""
    flat = x.reshape(-1)
    return [int(v) for v in flat.tolist()] if flat.dtype.kind in "iub" else [float(v) for v in flat.astype(np.float64)]


def assert_within(x: NDArray[Any], y: NDArray[Any], limit: Fraction) -> None:
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    same = x.reshape(-1).view(f"u{x.itemsize}") == y.reshape(-1).view(f"u{x.itemsize}")
    finite = np.isfinite(x.reshape(-1))
    assert same[~finite].all(), "a NaN or an infinity changed"
    where = np.flatnonzero(~same)
    for i, a, b in zip(where.tolist(), exact(x.reshape(-1)[where]), exact(y.reshape(-1)[where]), strict=True):
        assert abs(Fraction(a) - Fraction(b)) <= limit, (i, a, b, float(limit))


def limit_of(x: NDArray[Any], eb: float | None, mode: str) -> Fraction:
    if eb is None or x.dtype.kind == "b":
        return Fraction(0)
    finite = x[np.isfinite(x)]
    numbers = exact(np.array([finite.min(), finite.max()])) if finite.size else [0, 0]
    return Fraction(eb) * ((Fraction(numbers[1]) - Fraction(numbers[0])) if mode == "rel" else 1)


def check(x: NDArray[Any], eb: float | None, mode: str, preset: str, wanted: list[tuple[str, str]]) -> bq.CompressResult:
    """Round trips every way into poisoned arrays: one archive, one reconstruction, within the bound; return the first run."""
    runs = [bq.compress_run(x, eb, mode, pipeline=preset, target=t, fusion=f) for t, f in wanted]
    blob = bytes(runs[0].archive)
    assert all(bytes(run.archive) == blob for run in runs[1:]), "archives differ"
    assert len(blob) <= x.nbytes + 1024
    seen = set()
    for t, f in wanted:
        out = np.frombuffer(bytearray(b"\x01" * x.nbytes), x.dtype).reshape(x.shape)
        y = bq.decompress(blob, target=t, fusion=f, out=out)
        seen.add(y.tobytes())
    assert len(seen) == 1, "reconstructions differ"
    assert_within(x, y, limit_of(x, eb, mode))
    assert bq.verify(blob, x).ok
    return runs[0]


def bounds_for(dtype: str) -> list[tuple[float | None, str]]:
    if dtype in FLOATS:
        return [(1e-1, "abs"), (1e-3, "abs"), (1e-2, "rel"), (1e-3, "rel"), (1e-6, "rel")]
    return [(None, "abs"), (0.5, "abs"), (1, "abs"), (3, "abs"), (1e-2, "rel"), (1e-3, "rel"), (1e300, "abs")]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_every_type_through_every_preset(dtype: str, preset: str) -> None:
    wanted = ways(REFERENCE, FUSED, *([STAGED] if preset == "fast" else []))
    x = field(dtype, 2 * CHUNK + 77)
    for eb, mode in bounds_for(dtype):
        run = check(x, eb, mode, preset, wanted)
        head = "integer-quantizer" if dtype not in FLOATS else "masked-quantizer" if preset == "masked" else "linear-quantizer"
        assert run.raw or next(iter(run.plan.graph.nodes)) == head
        facts = bq.info(run.archive)
        assert facts["dtype"] == dtype
        if eb == 1e-2:
            assert not run.raw
            assert run.ratio > (2 if x.itemsize > 1 else 1.2)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_small_sizes_and_chunk_edges(dtype: str) -> None:
    counts = [*range(71), *(CHUNK + d for d in (-33, -1, 0, 1, 31)), 2 * CHUNK + 1]
    for n in counts:
        x = field(dtype, n)
        eb, mode = bounds_for(dtype)[n % 3 if n < 100 else 2]
        check(x, eb, mode, "fast", ways(REFERENCE, FUSED))


@pytest.mark.parametrize("dtype", ["float16", "int16", "uint64", "int32"])
def test_either_byte_order(dtype: str) -> None:
    little = field(dtype, 20_000).reshape(100, 200)
    big = little.astype(little.dtype.newbyteorder(">"))
    eb = 1e-2 if dtype in FLOATS else 3
    blob = bq.compress(big, eb)
    y = bq.decompress(blob)
    assert y.dtype == big.dtype
    assert y.dtype.byteorder == ">"
    z = bq.decompress(bq.compress(little, eb))
    assert z.tobytes() == y.astype(little.dtype).tobytes()
    assert bq.verify(blob, big).ok
    assert bq.verify(blob, little).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint64", "bool"])
def test_parts(dtype: str) -> None:
    x = field(dtype, 3 * CHUNK).reshape(-1, 64)
    blob = bq.compress(x, 1e-2 if dtype in FLOATS else None)
    whole = bq.decompress(blob)
    for part in (slice(0, 1), slice(100, 300), slice(-5, None), slice(7, 7)):
        for target, _ in ways(REFERENCE, FUSED):
            assert bq.decompress(blob, region=part, target=target).tobytes() == whole[part].tobytes()
            flat = bq.decompress(blob, flat=part, target=target)
            assert flat.dtype == x.dtype
            assert flat.tobytes() == whole.reshape(-1)[part].tobytes()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_lossless_integers_of_the_whole_range(dtype: str) -> None:
    """White noise is held raw, a walk that wraps around is not: differences are modulo 2**bits."""
    rng, ends = np.random.default_rng(1), np.iinfo(dtype)
    noise = rng.integers(ends.min, ends.max, 20_000, dtype, endpoint=True)
    assert check(noise, None, "abs", "fast", ways(REFERENCE, FUSED)).raw
    steps = rng.integers(-3, 4, 20_000).astype(np.int64)
    wrapped = (np.cumsum(steps).astype(np.uint64) + np.uint64(ends.max - 3)).astype(dtype)
    run = check(wrapped, None, "abs", "fast", ways(REFERENCE, FUSED))
    assert not run.raw
    assert run.outliers == 0
    assert run.eb == 0
    if np.dtype(dtype).itemsize > 1:
        assert run.ratio > 1.5


def test_a_bound_given_as_an_integer_is_never_rounded_up() -> None:
    eb = 2**53 + 3  # the nearest float64 is 2**53 + 4
    assert bq.Bound(eb).eb == 2**53 + 2
    assert bq.Bound(np.uint64(eb)).eb == 2**53 + 2
    x = (np.arange(20_000, dtype=np.int64) - 10_000) * (2**53 // 1000)
    run = bq.compress_run(x, eb)
    assert run.eb == 2**53 + 2
    assert_within(x, bq.decompress(run.archive), Fraction(eb))


def test_verify_finds_integers_beyond_the_bound() -> None:
    x = field("int64", 20_000)
    blob = bq.compress(x, 3)
    worse = x.copy()
    worse[777] = x[777] - 2**62 if x[777] > 0 else x[777] + 2**62
    report = bq.verify(blob, worse)
    assert report.bound is not None
    assert (report.bound.violations, report.bound.first_violation) == (1, 777)
    assert abs(report.bound.largest_error - 2.0**62) < 2.0**40
    near = x.copy()
    near[5] = x[5] + 7 if x[5] < 0 else x[5] - 7
    report = bq.verify(blob, near)
    assert report.bound is not None
    assert report.bound.violations == 1
    exact_blob = bq.verify(bq.compress(x), x)
    assert exact_blob.bound is not None
    assert (exact_blob.bound.largest_error, exact_blob.bound.psnr) == (0.0, float("inf"))


def test_scalars_shapes_and_plans() -> None:
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        x = np.zeros((), numpy_dtype(dtype))
        assert bq.decompress(bq.compress(x, 1)).dtype == x.dtype
        plan = bq.Pipeline.from_preset("planes").plan(x)
        assert plan.forward.launches == plan.inverse.launches == (1 if ways(FUSED) else 0)
    assert bq.Pipeline.from_preset("fast").plan("bfloat16").dtype == "bfloat16"


def test_a_stand_in_keeps_the_rest_of_a_graph() -> None:
    pipe = bq.Pipeline("mine", bound=bq.Bound(2))
    pipe.add("linear-quantizer", "head")
    pipe.add("lorenzo-1d")
    pipe.add("plain-rate")
    for source, to in (("in", "head.in"), ("head.codes", "lorenzo-1d.in"), ("lorenzo-1d.out", "plain-rate.in")):
        pipe.connect(source, to)
    x = field("int32", 20_000)
    run = pipe.run(x)
    assert run.eb == 2
    assert list(run.plan.graph.nodes) == ["head", "lorenzo-1d", "plain-rate"]
    assert next(s["stage"] for s in bq.info(run.archive)["stages"]) == "briquette-quantize:integer-quantizer"
    assert pipe.variant("int32", None) is pipe.variant("int32", None)
    assert pipe.variant("float32", bq.Bound(1)) is pipe
    assert pipe.variant("int32", None).title == "mine"
    assert_within(x, bq.decompress(run.archive), Fraction(2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "uint16"])
def test_bounds_are_found_for_a_ratio(dtype: str) -> None:
    x = field(dtype, 60_000)
    run = bq.compress_run(x, target_ratio=4.0)
    assert abs(run.ratio / 4.0 - 1) <= 0.03
    assert bq.verify(run.archive, x).ok
    with pytest.raises(bq.BriquetteError, match="means nothing for bool"):
        bq.compress(field("bool", 100), target_ratio=4.0)

"""Element counts, residues, alignments, code types and spans: where partial spans and unaligned buffers go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import (
    FUSED,
    PRESETS,
    REFERENCE,
    STAGED,
    WAYS,
    Way,
    assert_bound,
    assert_plan,
    assert_same_sinks,
    bits,
    compressed,
    restored,
    walk,
)

import briquette as bq
from briquette import discovery
from briquette.executor import Executable

FLOATS = ("float32", "float64")
#: from this many elements on a field of `small` is coded: the header no longer outweighs what coding saves
CODED_FROM = 140
EB = 4e-3


class Chain(NamedTuple):
    """A pipeline: dtype of the data, code type ("" for integer data), regions, zigzag or not, coder, segment."""

    dtype: str
    codes: str
    regions: tuple[int, ...]
    zigzag: bool
    coder: str
    segment: int
    staged: bool = False  # run staged too; the kernels are compiled for it

    def pipeline(self) -> bq.Pipeline:
        def stage(name: str, **params: Any) -> bq.Stage:
            return discovery.registry().stage_class(name).from_parameters(params)

        head = [stage("linear-quantizer", code_type=self.codes)] if self.codes else []
        middle = [stage("lorenzo-1d", region=r) for r in self.regions] + ([stage("zigzag")] if self.zigzag else [])
        return bq.chain(*head, *middle, stage(self.coder, segment=self.segment))

    def __str__(self) -> str:
        regions = "-".join(map(str, self.regions))
        return f"{self.dtype}-{self.codes or 'lossless'}-{regions}{'-zigzag' if self.zigzag else ''}-{self.coder}-{self.segment}"


CHAINS = (
    Chain("float32", "int16", (256,), False, "plain-rate", 32, staged=True),
    Chain("float32", "int64", (32,), False, "adaptive-bitplane", 32),
    Chain("float64", "int16", (32,), True, "adaptive-bitplane", 64, staged=True),
    Chain("float64", "int32", (256,), True, "plain-rate", 32),
    Chain("float32", "int32", (100,), False, "plain-rate", 32, staged=True),
    Chain("float32", "int32", (48,), False, "adaptive-bitplane", 128),
    Chain("float64", "int64", (4096,), False, "plain-rate", 64),
    Chain("float32", "int32", (65536,), True, "adaptive-bitplane", 128, staged=True),
    Chain("float64", "int64", (32, 256), False, "adaptive-bitplane", 1024),
    Chain("int16", "", (64,), False, "plain-rate", 64, staged=True),
    Chain("int64", "", (1,), False, "adaptive-bitplane", 32),
)


def executables(pipe: bq.Pipeline, dtype: str, staged: bool = True) -> list[Executable]:
    """The pipeline's plans, the reference first; each is the plan that its way promises."""
    ways = [way for way in WAYS if staged or way != STAGED]
    runs = [pipe.executable(dtype, way.target, way.fusion) for way in ways]
    for way, run in zip(ways, runs, strict=True):
        assert_plan(run.plan, way, tuple(run.graph.nodes))
    return runs


def field(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    if dtype.startswith("float"):
        return walk(rng, n, dtype)
    return np.cumsum(rng.integers(-9, 10, n)).astype(dtype)


def small(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """A field that is coded in fewer bytes from `CODED_FROM` elements on; longer ones have a special value."""
    x = walk(rng, n, dtype, specials=False)
    if n >= 400:
        x[rng.integers(n)] = rng.choice(np.array([np.nan, -np.inf, 1e37]))
    return x


def assert_identity(x: NDArray[Any], pipeline: Any, threads: int = 1, ways: Sequence[Way] = WAYS) -> None:
    """One coded archive and one reconstruction within the bound, in every way."""
    blob, back = b"", np.empty(0)
    for way in ways:
        coded = compressed(x, EB, "abs", pipeline, way, threads)
        assert not coded.raw, f"n = {x.size} is held raw: its archives are the same whatever the coders do"
        blob = blob or bytes(coded.archive)
        assert coded.archive == blob, (way, x.size)
        decoded = restored(blob, x, way, threads)
        assert_plan(decoded.plan, way, tuple(coded.plan.graph.nodes))
        if not back.size:
            back = decoded.array
            assert_bound(x, back, EB)
        assert np.array_equal(bits(decoded.array), bits(back)), (way, x.size)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_sinks_of_counts_to_600(preset: str, dtype: str, rng: np.random.Generator) -> None:
    """From one element on: an empty array is never coded (see the raw ones below)."""
    runs = executables(bq.Pipeline.from_preset(preset), dtype)
    for n in range(1, 601):
        x = walk(rng, n, dtype)
        assert_bound(x, assert_same_sinks(runs, x, bq.Bound(EB)), EB)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_archives_of_counts_to_600(preset: str, dtype: str, rng: np.random.Generator) -> None:
    for n in range(CODED_FROM, 601):
        ways = WAYS if n % 8 == 0 else (REFERENCE, FUSED)  # staged sinks of every count are compared above
        assert_identity(small(rng, n, dtype), preset, ways=ways)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_counts_too_small_to_code_are_raw_and_exact(way: Way, dtype: str, rng: np.random.Generator) -> None:
    """Raw archives are written by the same code on every target: what is asserted is that they are raw, and exact."""
    for n in range(40):
        x = walk(rng, n, dtype)
        coded = compressed(x, EB, "abs", "fast", way)
        assert coded.raw
        assert np.array_equal(bits(restored(bytes(coded.archive), x, way).array), bits(x))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_counts_around_multiples_of_a_chunk(preset: str, dtype: str, rng: np.random.Generator) -> None:
    counts = {8192 * k + d for k in range(1, 5) for d in (-257, -33, -1, 0, 1, 31, 256)}
    for n in sorted(counts):
        x = walk(rng, n, dtype)
        assert_identity(x, preset)
        assert_identity(x, preset, threads=3)


@pytest.mark.parametrize(("preset", "dtype"), [("fast", "float32"), ("planes", "float64"), ("zigzag", "float32")])
def test_counts_around_a_block_of_chunks(preset: str, dtype: str, rng: np.random.Generator) -> None:
    for n in (64 * 8192 - 1, 64 * 8192, 64 * 8192 + 1):
        assert_identity(walk(rng, n, dtype), preset, threads=2)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_every_residue_of_short_spans(chain: Chain, rng: np.random.Generator) -> None:
    """In a stream shorter than a chunk and in the second chunk of a longer one."""
    pipe = chain.pipeline()
    runs = executables(pipe, chain.dtype, chain.staged)
    bound = bq.Bound(EB) if chain.codes else None
    spans = [span for span in (*chain.regions, chain.segment) if span <= 256]
    top = max(spans, default=32)
    for n in range(1, 2 * top + 2):
        assert_same_sinks(runs, field(rng, n, chain.dtype), bound)
    if pipe.graph.chunk <= 8192:
        for n in range(pipe.graph.chunk - 1, pipe.graph.chunk + top + 1):
            assert_same_sinks(runs, field(rng, n, chain.dtype), bound, threads=2)


@pytest.mark.parametrize("chain", [c for c in CHAINS if max(c.regions) > 256 or c.segment > 256 or c.regions == (100,)], ids=str)
def test_residues_of_long_spans(chain: Chain, rng: np.random.Generator) -> None:
    """All residues that touch a 32-element boundary of the first segments, and random ones of the whole chunk."""
    runs = executables(chain.pipeline(), chain.dtype, chain.staged)
    top = runs[0].graph.chunk
    near = {base + k * 32 + d for base in (0, top) for k in range(8) for d in (-1, 0, 1) if base + k * 32 + d > 0}
    ends = {top + d for d in (-129, -1, 0, 1)} | {2 * top + d for d in (-1, 0, 1)}
    for n in sorted(near | ends | set(rng.integers(1, 2 * top, 24).tolist())):
        assert_same_sinks(runs, field(rng, n, chain.dtype), bq.Bound(EB), threads=2)


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_chain_archives(chain: Chain, rng: np.random.Generator) -> None:
    pipe = chain.pipeline()
    ways = [way for way in WAYS if chain.staged or way != STAGED]
    x = field(rng, pipe.graph.chunk * 2 + 333, chain.dtype)
    blobs, backs = [], []
    for way in ways:
        coded = compressed(x, EB if chain.codes else None, "abs", pipe, way, threads=2)
        assert not coded.raw
        assert_plan(coded.plan, way, tuple(pipe.graph.nodes))
        blobs.append(bytes(coded.archive))
        backs.append(restored(blobs[0], x, way, threads=2).array)
    assert blobs == blobs[:1] * len(ways)
    assert all(np.array_equal(bits(back), bits(backs[0])) for back in backs)
    if chain.codes:
        assert_bound(x, backs[0], EB)
    else:
        assert np.array_equal(backs[0], x)


def unaligned(values: NDArray[Any], offset: int) -> NDArray[Any]:
    """The values in memory that begins `offset` bytes after a multiple of 64."""
    room = np.full(values.nbytes + 128, 0xA5, np.uint8)
    begin = -room.ctypes.data % 64 + offset
    out = room[begin : begin + values.nbytes].view(values.dtype)
    assert out.ctypes.data % 64 == offset
    out[:] = values
    return out


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_alignment_of_input_and_output(preset: str, dtype: str, rng: np.random.Generator) -> None:
    for n in (CODED_FROM + 300, 8192 + 300):
        x = small(rng, n, dtype)
        blob = bq.compress(x, EB, pipeline=preset, target="numpy")
        back = bq.decompress(blob, target="numpy")
        for way in WAYS:
            for offset in range(16):
                coded = compressed(unaligned(x, offset), EB, "abs", preset, way)
                assert not coded.raw
                assert coded.archive == blob, (way, offset)
                out = unaligned(np.full(n, np.nan, dtype), offset)
                assert bq.decompress(blob, target=way.target, fusion=way.fusion, out=out) is out
                assert np.array_equal(bits(out), bits(back)), (way, offset)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_alignment_of_the_archive(dtype: str, rng: np.random.Generator) -> None:
    x = walk(rng, 9000, dtype)
    for preset in PRESETS:
        blob = np.frombuffer(bq.compress(x, EB, pipeline=preset, target="numpy"), np.uint8)
        back = bq.decompress(blob, target="numpy")
        for way in WAYS:
            for offset in range(16):
                assert np.array_equal(bits(restored(unaligned(blob, offset), x, way).array), bits(back)), (way, offset)
                room = unaligned(np.zeros(bq.max_archive_bytes(x), np.uint8), offset)
                made = bq.compress(x, EB, pipeline=preset, target=way.target, fusion=way.fusion, out=room)
                assert made == memoryview(blob), (way, offset)


@pytest.mark.parametrize("way", [STAGED, FUSED], ids="-".join)
def test_nothing_is_written_beside_an_output(way: Way, rng: np.random.Generator) -> None:
    for n in (1, 31, 33, 255, 700, 8191, 8193):
        x = small(rng, n, "float32")
        runs = executables(bq.Pipeline.from_preset("fast"), "float32")
        record, values = runs[0].forward(x, bq.Bound(EB), 1)
        run = runs[WAYS.index(way)]
        for offset in (0, 1, 4, 8):
            room = np.full(4 * n + 192, 0xA5, np.uint8)
            out = room[64 + offset : 64 + offset + 4 * n].view(np.float32)
            run.inverse(values, record, n, 1, out)
            edges = np.concatenate([room[: 64 + offset], room[64 + offset + 4 * n :]])
            assert (edges == 0xA5).all(), (n, offset)

"""Chains and presets of the chunk-cooperative harness with quantizers: bounds, one group each way, the reference's bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import FUSED, REFERENCE, STAGED, WAYS, assert_plan, assert_same_sinks, bits, compressed, restored, walk

import briquette as bq
from briquette import bounds
from briquette.record import Bound

CODERS: Final = (
    "zero-elimination",
    "repetition-elimination",
    "adaptive-repetition-elimination",
    "adaptive-zero-elimination",
)
BOUNDS: Final = (Bound(1e-2), Bound(1e-3, "rel"), Bound(1e-2, "pwrel"))
#: preset -> what stands between head and coder, and the coder
PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "chunked": ("chunk-difference", "zigzag", "bit-shuffle", "zero-elimination"),
    "repeated-planes": ("chunk-difference", "zigzag", "bit-shuffle", "repetition-elimination"),
    "leading-bits": ("chunk-difference", "negabinary", "adaptive-zero-elimination"),
    "leading-repeats": ("adaptive-repetition-elimination",),
    "packed-chunks": ("chunk-difference", "hclog"),
    "packed-widths": ("chunk-difference", "zigzag", "clog"),
}
IN_PLACE: Final = ("chunked", "repeated-planes")


def head_of(mode: str) -> str:
    return "in-place-log-quantizer" if mode == "pwrel" else "in-place-quantizer"


def nodes_of(preset: str, mode: str) -> tuple[str, ...]:
    head = "log-quantizer" if mode == "pwrel" else "linear-quantizer"
    return (head_of(mode) if preset in IN_PLACE else head, *PRESETS[preset])


def assert_kept(x: NDArray[Any], y: NDArray[Any], bound: Bound) -> None:
    report = bounds.compare(x, y, bounds.resolve(bound, x), point_wise=bound.mode == "pwrel")
    assert report.ok, report


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [4096, 8192, 16384])
@pytest.mark.parametrize("coder", CODERS)
def test_every_coder_and_chunk_size(coder: str, size: int, dtype: str, rng: np.random.Generator) -> None:
    for bound in BOUNDS:
        stages = ["chunk-difference", "bit-shuffle", coder]
        text = f'[[stage]]\nuse = "{head_of(bound.mode)}"\n'
        text += "".join(f'[[stage]]\nuse = "{s}"\nparams = {{ chunk_bytes = {size} }}\n' for s in stages)
        pipe = bq.Pipeline.from_toml(text)
        nodes = (head_of(bound.mode), *stages)
        runs = [pipe.executable(dtype, way.target, way.fusion) for way in WAYS]
        for run, way in zip(runs, WAYS, strict=True):
            assert_plan(run.plan, way, nodes)
        items = size // np.dtype(dtype).itemsize
        for n in (1, items - 1, 3 * items + int(rng.integers(1, items))):
            x = walk(rng, n, dtype)
            assert_kept(x, assert_same_sinks(runs, x, bound), bound)


@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fuse(preset: str, mode: Any) -> None:
    pipe = bq.Pipeline.from_preset(preset)
    for dtype in ("float32", "float64"):
        for way in WAYS:
            plan = pipe.plan(dtype, way.target, way.fusion, mode)
            assert_plan(plan, way, nodes_of(preset, mode))
            if way == FUSED:
                inner = {f"{a}.{p}" for a, p in zip(nodes_of(preset, mode)[:-1], ["codes", *["out"] * 9], strict=False)}
                assert inner == {".".join(port) for port in plan.forward.elided} == {".".join(p) for p in plan.inverse.elided}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_residue_of_the_last_chunk(preset: str, rng: np.random.Generator) -> None:
    """Counts that leave every number of elements in a chunk's last 256 bytes, and beyond."""
    for dtype in ("float32", "float64"):
        bound = BOUNDS[int(rng.integers(3))]
        pipe = bq.Pipeline.from_preset(preset).variant(dtype, bound)
        runs = [pipe.executable(dtype, way.target, way.fusion) for way in (REFERENCE, FUSED)]
        items = pipe.graph.chunk_for(dtype)
        x = walk(rng, 2 * items, dtype)
        whole = int(rng.integers(2)) * items
        for n in [*range(1, 66), *range(whole + 1, whole + 257, 3), *range(items - 130, items + 3)]:
            part = x[:n].copy()
            assert_kept(part, assert_same_sinks(runs, part, bound), bound)


def assert_field(x: NDArray[Any], preset: str, limits: tuple[Bound, ...]) -> None:
    for bound in limits:
        first = compressed(x, bound.eb, bound.mode, preset, REFERENCE)
        blob = bytes(first.archive)
        back = restored(blob, x, REFERENCE).array
        assert_kept(x, back, bound)
        for way in (STAGED, FUSED):
            assert compressed(x, bound.eb, bound.mode, preset, way).archive == blob, way
            decoded = restored(blob, x, way)
            assert np.array_equal(bits(decoded.array), bits(back))
            if not first.raw:
                assert_plan(decoded.plan, way, nodes_of(preset, bound.mode))


FIELD_BOUNDS: Final = (*(Bound(eb, "rel") for eb in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)), Bound(1e-2, "pwrel"), Bound(1e-3, "pwrel"))


def test_chunked_on_the_corpus(corpus_field: Path) -> None:
    assert_field(np.load(corpus_field), "chunked", FIELD_BOUNDS)


@pytest.mark.parametrize("preset", PRESETS)
def test_bundled_fields(bundled_field: Path, preset: str) -> None:
    assert_field(np.load(bundled_field), preset, FIELD_BOUNDS[1::2])


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("preset", PRESETS)
def test_other_types(preset: str, dtype: str, rng: np.random.Generator) -> None:
    steps = rng.integers(-2, 3, 30_001) * (rng.random(30_001) < 0.25)  # `leading-repeats` predicts nothing: values must stay
    x = (np.abs((np.cumsum(steps) + 20) % 80 - 40) - 20).astype(dtype)  # and a walk that drifts off is no field of small values
    for eb in (1.0, None) if "int" in dtype else (0.5, 1.0):
        blobs = {bytes(bq.compress(x, eb, pipeline=preset, target=way.target, fusion=way.fusion)) for way in WAYS}
        assert len(blobs) == 1
        blob = blobs.pop()
        assert len(blob) < x.nbytes
        assert bq.verify(blob, x).ok
        for way in WAYS:
            back = bq.decompress(blob, target=way.target, fusion=way.fusion)
            assert np.array_equal(back, x) if eb is None else np.abs(back.astype("f8") - x.astype("f8")).max() <= eb

"""Quantizers before chains on byte-chunks on a GPU: every head, mode, size and coder, every residue, and real fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess
from briquette.ports import Chunked
from briquette.record import Bound

pytestmark = pytest.mark.gpu

SIZES = (4096, 8192, 16384)
BOUNDS = (Bound(1e-2), Bound(1e-3, "rel"), Bound(1e-2, "pwrel"))


def coders() -> list[str]:
    """Every coder for chunks that is installed."""
    registry = discovery.registry()
    found = [(name, registry.stage_class(name)) for name in registry.stages()]
    sized = [(name, cls) for name, cls in found if "chunk_bytes" in cls.parameter_names()]
    return [name for name, cls in sized if cls().fusion_spec().access is FusionAccess.SEGMENT_CODEC]


def presets() -> list[str]:
    """Every preset with a bound that has a stage on chunks."""
    registry = discovery.registry()
    pipes = {name: bq.Pipeline.from_preset(name) for name in registry.presets()}
    lossy = {
        name: list(p.graph.nodes.values()) for name, p in pipes.items() if any(s.needs_bound for s in p.graph.nodes.values())
    }
    return [name for name, nodes in lossy.items() if any("chunk_bytes" in s.parameter_names() for s in nodes)]


def field(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """A walk through a few magnitudes, with what has no code among it."""
    x = (np.cumsum(rng.standard_normal(n)) * np.exp(rng.normal(0, 0.01, n).cumsum())).astype(dtype)
    info = np.finfo(dtype)
    for value in (0.0, -0.0, np.nan, np.inf, -np.inf, info.max, info.smallest_subnormal):
        x[rng.integers(0, n, n // 500)] = value
    return x


def as_bytes(run: Any, values: dict[Any, Any]) -> dict[Any, tuple[bytes, ...]]:
    host = {port: run.to_host(v) for port, v in values.items()}
    return {p: (v.sizes.tobytes(), v.words.tobytes()) if isinstance(v, Chunked) else (v.tobytes(),) for p, v in host.items()}


def assert_the_same(pipe: bq.Pipeline, x: NDArray[Any], bound: Bound, reference: str, staged: bool = True) -> None:
    """The values of every sink and what comes back of them, in one launch each way or in one a stage."""
    plain = pipe.executable(x.dtype.name, reference, "off" if reference == "numpy" else "auto")
    record, expected = plain.forward(x, bound, 1)
    restored = np.empty_like(x)
    plain.inverse(dict(expected), record, x.size, 1, restored)
    for fusion, launches in (("auto", 1), ("off", len(pipe.graph.nodes)))[: 2 if staged else 1]:
        run = pipe.executable(x.dtype.name, "cuda", fusion)
        assert (run.plan.forward.launches, run.plan.inverse.launches) == (launches, launches), run.plan.explain()
        _, values = run.forward(x, bound, 1)
        assert as_bytes(run, values) == as_bytes(plain, expected), (x.size, fusion, bound)
        out = np.frombuffer(bytearray(b"\x5a" * x.nbytes), x.dtype)
        run.inverse(dict(expected), record, x.size, 1, out)
        assert out.tobytes() == restored.tobytes(), (x.size, fusion, bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("coder", coders())
def test_every_coder_size_and_mode(coder: str, size: int, dtype: str, rng: np.random.Generator) -> None:
    for bound in BOUNDS:
        heads = (
            ("in-place-log-quantizer", "log-quantizer") if bound.mode == "pwrel" else ("in-place-quantizer", "linear-quantizer")
        )
        for head in heads:
            chunked = ("chunk-difference", "bit-shuffle", coder)
            text = f'[[stage]]\nuse = "{head}"\n'
            text += "".join(f'[[stage]]\nuse = "{s}"\nparams = {{ chunk_bytes = {size} }}\n' for s in chunked)
            pipe = bq.Pipeline.from_toml(text)
            items = pipe.graph.chunk_for(dtype)
            for n in (1, items - 1, items, 3 * items + int(rng.integers(1, items)), 130 * items + 5):
                assert_the_same(pipe, field(rng, n, dtype), bound, "numpy", staged=n < 4 * items)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", presets())
def test_every_residue_of_the_last_chunk(preset: str, dtype: str, rng: np.random.Generator) -> None:
    for bound in BOUNDS:
        pipe = bq.Pipeline.from_preset(preset).variant(dtype, bound)
        items = pipe.graph.chunk_for(dtype)
        x = field(rng, 2 * items, dtype)
        for n in [*range(1, 66), *range(items - 130, items + 130), *range(2 * items - 66, 2 * items + 1)]:
            assert_the_same(pipe, x[:n].copy(), bound, "host", staged=False)


@pytest.mark.parametrize("preset", presets())
def test_real_fields(preset: str, corpus_field: Any) -> None:
    x = np.load(corpus_field)
    rels = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6) if preset == "chunked" else (1e-3,)
    for eb, mode in [*((rel, "rel") for rel in rels), (1e-2, "pwrel"), (1e-3, "pwrel")]:
        archive = bytes(bq.compress(x, eb, mode, pipeline=preset, target="host"))
        expected = bq.decompress(archive, target="host").tobytes()
        for fusion in ("auto", "off"):
            made = bq.compress_run(x, eb, mode, pipeline=preset, target="cuda", fusion=fusion)
            assert made.archive == archive, (fusion, eb, mode)
            out = np.frombuffer(bytearray(b"\x5a" * x.nbytes), x.dtype).reshape(x.shape)
            assert bq.decompress(archive, target="cuda", fusion=fusion, out=out).tobytes() == expected, (fusion, eb, mode)
        assert bq.verify(archive, x, target="cuda").ok

"""Chains on byte-chunks on a GPU: the values of the NumPy reference, with every coder for chunks that is installed and none."""

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
from briquette.stage import Stage

pytestmark = pytest.mark.gpu


def stage(name: str, **params: Any) -> Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def coders(size: int) -> list[list[Stage]]:
    """No coder, and each that is installed."""
    registry = discovery.registry()
    made = [registry.stage_class(name) for name in registry.stages()]
    found = [cls.from_parameters({"chunk_bytes": size}) for cls in made if "chunk_bytes" in cls.parameter_names()]
    return [[], *([s] for s in found if s.fusion_spec().access is FusionAccess.SEGMENT_CODEC)]


def pipelines(dtype: str, size: int) -> list[bq.Pipeline]:
    word = min(np.dtype(dtype).itemsize, 8)
    ops = [stage("chunk-difference", chunk_bytes=size), stage("negabinary"), stage("bit-shuffle", chunk_bytes=size, word=word)]
    head = [stage("linear-quantizer")] if dtype.startswith("float") else []
    return [bq.chain(*head, *ops, *coder) for coder in coders(size)]


def field(n: int, dtype: str) -> NDArray[Any]:
    rng = np.random.default_rng(n)
    walk = np.cumsum(rng.normal(size=n))
    if not dtype.startswith("float"):
        return (20 * walk).astype(np.int64).astype(dtype)
    x = walk.astype(dtype)
    if n > 200:
        x[::97], x[n // 2 : n // 2 + 100] = np.nan, np.inf
    return x


def as_bytes(run: Any, values: dict[Any, Any]) -> dict[Any, tuple[bytes, ...]]:
    host = {port: run.to_host(v) for port, v in values.items()}
    return {p: (v.sizes.tobytes(), v.words.tobytes()) if isinstance(v, Chunked) else (v.tobytes(),) for p, v in host.items()}


@pytest.mark.parametrize("size", [4096, 8192, 16384])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int32", "uint64"])
def test_the_reference_values_staged_and_fused(dtype: str, size: int) -> None:
    items = size // np.dtype(dtype).itemsize
    bound = Bound(1e-3, "rel") if dtype.startswith("float") else None
    for pipe in pipelines(dtype, size):
        plain = pipe.executable(dtype, "numpy", "off")
        for n in (0, 1, 37, items - 1, items, items + 1, 300 * items + 77):
            x = field(n, dtype)
            record, expected = plain.forward(x, bound, 1)
            restored = np.empty_like(x)
            plain.inverse(dict(expected), record, n, 1, restored)
            for fusion in ("auto", "off"):
                run = pipe.executable(dtype, "cuda", fusion)
                assert run.plan.forward.launches == (1 if fusion == "auto" else len(pipe.graph.nodes)), run.plan.explain()
                record, values = run.forward(x, bound, 1)
                assert as_bytes(run, values) == as_bytes(plain, expected), (n, fusion)
                out = np.full_like(x, 77)
                run.inverse(dict(expected), record, n, 1, out)
                assert out.tobytes() == restored.tobytes(), (n, fusion)


def test_every_offset_of_the_input() -> None:
    for pipe in pipelines("float32", 16384):
        run, plain = pipe.executable("float32", "cuda", "auto"), pipe.executable("float32", "numpy", "off")
        whole = field(9000, "float32")
        for begin in range(5):
            x = whole[begin:]
            values, expected = run.forward(x, Bound(1e-3), 1)[1], plain.forward(x, Bound(1e-3), 1)[1]
            assert as_bytes(run, values) == as_bytes(plain, expected), begin


def test_parts_and_graphs_where_there_is_a_coder() -> None:
    cupy = pytest.importorskip("cupy", reason="device arrays of this test are CuPy's")
    for pipe in pipelines("float32", 16384)[1:]:
        x = np.cumsum(np.random.default_rng(1).normal(size=300_000)).astype(np.float32)
        archive = bq.compress(x, 1e-1, pipeline=pipe, target="numpy")
        whole = bq.decompress(archive, target="numpy")
        held = bq.compress_on_device(cupy.asarray(x), 1e-1, pipeline=pipe)
        for begin, end in ((0, 300_000), (4095, 4097), (70_000, 200_000)):
            part = cupy.asnumpy(cupy.asarray(held.decompress(flat=slice(begin, end))))
            assert part.tobytes() == whole[begin:end].tobytes()
        source = cupy.asarray(x)
        captured = pipe.capture(source, 1e-1)
        for scale in (1, 3):
            source[:] = cupy.asarray(x * np.float32(scale))
            captured.compress()
            due = bq.decompress(bq.compress(x * np.float32(scale), 1e-1, pipeline=pipe, target="numpy"), target="numpy")
            assert cupy.asnumpy(cupy.asarray(captured.decompress())).tobytes() == due.tobytes()

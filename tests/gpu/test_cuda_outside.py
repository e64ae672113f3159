"""Stages of two packs from outside on `cuda`: one launch each way, alone and mixed with ours, and the reference's bytes.

The packs are those of ``tests/outside``, installed from their wheels: ``pip wheel --no-deps`` of both folders in
``tests/outside/packs``, then ``pip install --no-deps`` of what that made.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import bounds

pytestmark = pytest.mark.gpu

Chain = tuple[tuple[str, Mapping[str, Any]], ...]

CHAINS: list[Chain] = [
    (("linear-quantizer", {}), ("difference2", {}), ("plain-rate", {})),
    (("power2-quantizer", {}), ("difference2", {}), ("byte-coder", {})),
    (("linear-quantizer", {"code_type": "int16"}), ("difference2", {"region": 32}), ("zigzag", {}), ("byte-coder", {})),
    (("power2-quantizer", {}), ("lorenzo-1d", {}), ("plain-rate", {})),
    (("power2-quantizer", {}), ("lorenzo-1d", {}), ("zigzag", {}), ("byte-coder", {"center": 5})),
    (("power2-quantizer", {}), ("difference2", {}), ("lorenzo-1d", {}), ("adaptive-bitplane", {"segment": 64})),
]
EB = 2e-3
MODES = ("off", "auto")


@pytest.fixture(autouse=True)
def _packs_are_installed() -> None:
    absent = [name for name in ("acme_coder", "acme_difference2") if importlib.util.find_spec(name) is None]
    if not absent:
        return
    what = f"{' and '.join(absent)} are not installed: build wheels of tests/outside/packs/* and install them"
    if os.environ.get("BRIQUETTE_REQUIRE_GPU") == "1":
        pytest.fail(what + " (BRIQUETTE_REQUIRE_GPU=1)", pytrace=False)
    pytest.skip(what)


def named(chain: Chain) -> str:
    return "+".join(name for name, _ in chain)


def pipeline(chain: Chain) -> bq.Pipeline:
    lines = []
    for name, params in chain:
        lines += ["[[stage]]", f'use = "{name}"', "[stage.params]", *(f"{k} = {v!r}" for k, v in params.items())]
    return bq.Pipeline.from_toml("\n".join(lines).replace("'", '"'))


def field(n: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    """Return a smooth field with a rough part and, where it is long enough, values that no code holds."""
    at = np.arange(n)
    x = np.sin(at / 40.0) + np.where(at % 1000 > 900, np.sin(at * 1.7), 0.0) - 0.3
    x = x.astype(dtype)
    if n > 300:
        x[[7, 130, 131, 299]] = np.nan, np.inf, -np.inf, 3e37
    return x


def assert_same(pipe: bq.Pipeline, x: np.ndarray[Any, Any], eb: float = EB, mode: str = "abs") -> None:
    """Compress and decompress on numpy and, staged and fused, on cuda, into poisoned memory; check the bound."""
    reference = pipe.run(x, eb, mode, target="numpy")
    expected = bq.decompress(reference.archive, target="numpy")
    for fusion in MODES:
        made = pipe.run(x, eb, mode, target="cuda", fusion=fusion)
        assert made.archive == reference.archive, fusion
        assert (made.raw, made.outliers) == (reference.raw, reference.outliers), fusion
        out = np.full_like(x, -77)
        assert bq.decompress(reference.archive, target="cuda", fusion=fusion, out=out).tobytes() == expected.tobytes(), fusion
    report = bounds.compare(x, expected, bounds.resolve(bq.Bound(eb, mode), x) if x.dtype.kind == "f" else 0.0)
    assert report.ok, report


@pytest.mark.parametrize("chain", CHAINS, ids=named)
def test_groups_and_launches(chain: Chain) -> None:
    names = tuple(name for name, _ in chain)
    fused, staged = (pipeline(chain).plan("float32", "cuda", mode) for mode in ("auto", "off"))
    for direction in (fused.forward, fused.inverse):
        assert direction.groups == (names,)
        assert direction.launches == 1
        assert direction.reasons == ()
        assert {node for node, _ in direction.elided} == set(names[:-1])
    for direction in (staged.forward, staged.inverse):
        assert direction.groups == ()
        assert direction.launches == len(chain)
        assert [step.kind for step in direction.steps] == ["kernel"] * len(chain)


@pytest.mark.parametrize("mode", ["abs", "rel"])
@pytest.mark.parametrize("chain", CHAINS, ids=named)
def test_bytes_and_values_are_the_references(chain: Chain, mode: str) -> None:
    pipe = pipeline(chain)
    for n in (1, 33, 5000, 8191, 8193, 3 * 8192 + 77, 66 * 8192 + 5):
        x = field(n)
        if mode == "rel":
            x[np.abs(x) > 1e6] = 2.0  # a range that leaves something of the field
        assert_same(pipe, x, EB, mode)


def test_float64_fields_and_int64_codes() -> None:
    chain: Chain = (("linear-quantizer", {}), ("difference2", {}), ("byte-coder", {}))
    pipe, x = pipeline(chain), field(20_011, "float64")
    assert pipe.plan(x, "cuda", "auto").forward.groups == (tuple(name for name, _ in chain),)
    for eb in (EB, 1e-13):
        assert_same(pipe, x, eb)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
def test_integer_fields_need_no_quantizer(dtype: str) -> None:
    pipe = pipeline(CHAINS[1][1:])
    x = np.round(1000 * np.sin(np.arange(50_003) / 70)).astype(dtype)
    reference = bytes(pipe.compress(x, target="numpy"))
    assert pipe.plan(dtype, "cuda", "auto").forward.launches == 1
    for fusion in MODES:
        assert pipe.compress(x, target="cuda", fusion=fusion) == reference
        assert bq.decompress(reference, target="cuda", fusion=fusion).tobytes() == x.tobytes()


@pytest.mark.parametrize("preset", ["second-order", "byte-granular"])
def test_their_presets_on_arrays_of_the_device(preset: str) -> None:
    cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")
    x = field(300_000)
    archive = bq.compress_on_device(cupy.asarray(x), EB, pipeline=preset)
    reference = bytes(bq.compress(x, EB, pipeline=preset, target="numpy"))
    assert archive.to_bytes() == reference
    part = cupy.asnumpy(cupy.asarray(archive.decompress(flat=slice(100_000, 200_001))))
    assert part.tobytes() == bq.decompress(reference, target="numpy")[100_000:200_001].tobytes()

"""The preset `archive`: the best ratio of all presets, the bound, specials, and the same bytes whatever ran it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery

TARGETS = ("numpy", "host")


@pytest.fixture(autouse=True, scope="module")
def _compiler() -> None:
    reason = discovery.registry().target("host").unavailable()
    if reason is not None:
        pytest.skip(reason)


def compressed(x: NDArray[Any], eb: float, mode: str, target: str, **options: Any) -> bytes:
    return bytes(bq.compress(x, eb, mode, pipeline="archive", target=target, **options))


def test_no_other_preset_is_smaller_on_real_fields(bundled_field: Path) -> None:
    x = np.load(bundled_field)
    mine = len(compressed(x, 1e-3, "rel", "host"))
    for preset in ("fast", "planes", "zigzag", "adaptive", "leading-bits", "packed-chunks"):
        assert len(bq.compress(x, 1e-3, "rel", pipeline=preset)) > mine, preset


@pytest.mark.parametrize(("mode", "eb"), [("rel", 1e-2), ("rel", 1e-5), ("abs", 1e-3), ("pwrel", 1e-2)])
def test_the_bound_holds_and_targets_and_threads_agree(bundled_field: Path, mode: str, eb: float) -> None:
    x = np.load(bundled_field).reshape(-1)[:300_000]
    data = compressed(x, eb, mode, "numpy")
    for fusion, threads in itertools.product(("auto", "off"), (1, 3)):
        assert compressed(x, eb, mode, "host", fusion=fusion, threads=threads) == data
    first, second = (bq.decompress(data, target=t) for t in TARGETS)
    assert first.tobytes() == second.tobytes()
    report = bq.verify(data, x)
    assert report.ok


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_specials_come_back_bit_for_bit(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal(50_000)).astype(dtype)
    for special in (np.nan, -np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).tiny / 8, np.finfo(dtype).max):
        x[rng.integers(0, x.size, 50)] = special
    bits = f"u{x.itemsize}"
    data = compressed(x, 1e-3, "abs", "host")
    kept = ~np.isfinite(x)
    for target in TARGETS:
        y = bq.decompress(data, target=target)
        assert np.array_equal(y.view(bits)[kept], x.view(bits)[kept])
        assert bq.verify(data, x).ok


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float16"])
def test_other_types(dtype: str) -> None:
    x = (np.cumsum(np.random.default_rng(0).standard_normal(20_000)) % 100).astype(dtype)
    bound = (1.0, "abs") if dtype != "float16" else (1e-2, "rel")
    data = compressed(x, *bound, "numpy")
    assert compressed(x, *bound, "host") == data
    assert len(data) < x.nbytes
    assert bq.verify(data, x).ok


def test_the_predictor_group_fuses_and_both_its_ports_are_coded() -> None:
    x = np.cumsum(np.random.default_rng(0).standard_normal(40_000)).astype(np.float32)
    x[::1000] = np.nan
    pipe = bq.Pipeline.from_preset("archive")
    plan = pipe.plan(x, target="host")
    assert plan.forward.groups == plan.inverse.groups == (("linear-quantizer", "lorenzo-1d"),)
    assert plan.forward.launches == plan.inverse.launches == 3
    assert not plan.forward.transfers
    assert plan.graph.sinks == (("huffman", "out"), ("kept", "out"))
    reasons = {(r.src, r.dst): r.reason for r in plan.forward.reasons}
    assert reasons == {
        ("linear-quantizer", "kept"): "linear-quantizer.outliers is a side port: it leaves the main path",
        ("lorenzo-1d", "huffman"): "huffman declares no role: UNFUSABLE, a barrier",
    }
    assert bq.Pipeline.from_toml(pipe.to_toml()) == pipe
    data = pipe.compress(x, 1e-3, "rel")
    assert len(bq.info(data)["segments"]) == 2
    assert np.array_equal(bq.decompress(data, region=slice(9000, 21_000)), bq.decompress(data)[9000:21_000], equal_nan=True)


def test_coding_what_is_kept_aside_pays() -> None:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal(200_000)).astype(np.float32)
    far = rng.random(x.size) < 0.1
    x[far] = (1e30 * (1 + rng.random(x.size)))[far]
    plain = bq.chain(
        "linear-quantizer", discovery.registry().stage_class("lorenzo-1d").from_parameters({"region": 1024}), "huffman"
    )
    data = compressed(x, 1e-2, "abs", "host")
    assert len(data) < 0.96 * len(plain.compress(x, 1e-2, "abs"))
    assert bq.verify(data, x).ok


@pytest.mark.parametrize("size", [1, 2, 31, 8191, 8193])
def test_small_arrays(size: int) -> None:
    x = np.linspace(0, 1, size).astype(np.float32)
    data = compressed(x, 1e-3, "abs", "numpy")
    assert compressed(x, 1e-3, "abs", "host") == data
    assert bq.verify(data, x).ok

"""Pipelines with a LAYOUT: the same bytes on every target, staged and fused, and parts that are slices of the whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import bounds, discovery
from briquette.errors import ArchiveError, PipelineError, UnsupportedInput
from briquette.ports import Chunked, numpy_dtype

WAYS = [("numpy", "off", 1), ("numpy", "auto", 1), ("host", "off", 2), ("host", "auto", 1), ("host", "auto", 5)]
#: what stands behind the head, and whether it is one kernel
CHAINS: dict[str, tuple[str | tuple[str, dict[str, Any]], ...]] = {
    "tiled": ("tile-order", "tiled-lorenzo", "plain-rate"),
    "tiled-outlier": ("tile-order", "tiled-lorenzo", "outlier"),
    "tiled-fixed": ("tile-order", "plain-rate"),
    "adaptive": ("tile-order", "adaptive-lorenzo", "plain-rate"),
    "transforms": ("zigzag", "tile-order", "adaptive-bitplane"),
    "regions": ("tile-order", ("lorenzo-1d", {"region": 128}), "tiled-lorenzo", "zigzag", ("outlier", {"segment": 128})),
    "rows": (("tile-order", {"axes": 1}), ("tiled-lorenzo", {"axes": 1}), "outlier"),
}
SHAPES = [(20011,), (131, 157), (64, 256), (41, 37, 19), (3, 20, 30, 17), (1, 300, 70)]


def stages(name: str, head: str = "linear-quantizer") -> list[bq.Stage]:
    found = []
    for entry in (head, *CHAINS[name]):
        use, params = entry if isinstance(entry, tuple) else (entry, {})
        found.append(discovery.registry().stage_class(use).from_parameters(params))
    return found


@pytest.fixture(autouse=True)
def host() -> None:
    reason = discovery.registry().target("host").unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")


def field(shape: tuple[int, ...], dtype: str, holes: bool = True) -> np.ndarray[Any, Any]:
    n = math.prod(shape)
    rng = np.random.default_rng(n)
    x = (np.cumsum(rng.standard_normal(n)) / 4).astype(np.int64 if "int" in dtype else np.float64).astype(numpy_dtype(dtype))
    if holes and "float" in dtype and n > 100:
        x[[3, 77, n - 1]] = np.nan
        x[n // 2 : n // 2 + 40] = np.inf
        x[:: n // 7] = -3e4
        x[n // 3 : n // 3 + n // 9] = np.nan
    return x.reshape(shape)


def assert_same(pipe: bq.Pipeline, x: np.ndarray[Any, Any], eb: float | None, mode: str = "abs") -> bytes:
    """Compress and decompress every way there is; return the archive, which is the same and holds the bound."""
    found, restored = set(), set()
    for target, fusion, threads in WAYS:
        found.add(bytes(pipe.compress(x, eb, mode, target=target, fusion=fusion, threads=threads)))
        assert len(found) == 1, (target, fusion, threads)
        (blob,) = found
        out = np.frombuffer(bytearray(b"\x01" * x.nbytes), x.dtype).reshape(x.shape)
        restored.add(bq.decompress(blob, target=target, fusion=fusion, threads=threads, out=out).tobytes())
        assert len(restored) == 1, (target, fusion, threads)
    assert bq.verify(blob, x, target="numpy").ok
    return blob


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_with_a_layout_is_one_kernel_each_way(name: str) -> None:
    pipe = bq.chain(*stages(name))
    plan = pipe.plan("float32", target="host", fusion="auto")
    assert plan.forward.groups == plan.inverse.groups == (tuple(pipe.graph.nodes),)
    assert plan.forward.launches == plan.inverse.launches == 1
    assert plan.random_access
    staged = pipe.plan("float32", target="host", fusion="off")
    assert staged.forward.launches == len(pipe.graph.nodes) - 2 * (name == "adaptive")
    assert "fused by warp-register: linear-quantizer + " in plan.explain()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_same_bytes_every_way(name: str, shape: tuple[int, ...], dtype: str) -> None:
    x = field(shape, dtype)
    pipe = bq.chain(*stages(name))
    blob = assert_same(pipe, x, 0.25)
    assert not bq.info(blob)["raw"]
    whole = bq.decompress(blob, target="numpy")
    rows = x.shape[0]
    for target in ("numpy", "host"):
        for part in (slice(0, 1), slice(rows // 2, rows // 2 + 3), slice(-2, None), slice(1, 1)):
            assert bq.decompress(blob, region=part, target=target).tobytes() == whole[part].tobytes(), part
        for part in (slice(9, 10), slice(x.size // 3, x.size // 3 + 500), slice(8190, 8194), slice(x.size - 5, None)):
            assert bq.decompress(blob, flat=part, target=target).tobytes() == whole.reshape(-1)[part].tobytes(), part


@pytest.mark.parametrize("name", ["tiled", "adaptive"])
def test_every_residue(name: str) -> None:
    """Two more chunks than a whole number of tiles along each axis, by every number of elements that may be left."""
    pipe = bq.chain(*stages(name))
    for left in range(0, 65, 1 if name == "tiled" else 7):
        assert_same(pipe, field((8192 + 128 + left,), "float32", holes=False), 0.05)
    for rows, columns in [(128 + a, 64 + b) for a in range(9) for b in range(0, 9, 3)]:
        assert_same(pipe, field((rows, columns), "float32"), 0.05)
    for shape in [(20 + a, 21 + b, 20 + c) for a, b, c in np.ndindex(2, 4, 5)]:
        assert_same(pipe, field(shape, "float32"), 0.05)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2,), (1, 1, 1), (1, 700), (700, 1), (1, 1, 300, 1)], ids=str)
def test_small_and_thin_arrays(shape: tuple[int, ...]) -> None:
    for name in ("tiled", "tiled-outlier", "tiled-fixed", "adaptive"):
        x = field(shape, "float64", holes=False)
        blob = assert_same(bq.chain(*stages(name)), x, 0.1)
        assert bq.info(blob)["raw"] is (x.size < 300)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_lossless_and_lossy(dtype: str) -> None:
    x = np.clip(field((90, 133), "int64"), 0 if dtype[0] == "u" else -100, 100).astype(dtype)
    for preset in ("tiled", "tiled-outlier", "tiled-fixed"):
        pipe = bq.Pipeline.from_preset(preset)
        for eb in (None, 2):
            blob = assert_same(pipe, x, eb)
            back = bq.decompress(blob)
            assert back.dtype == x.dtype
            if eb is None:
                np.testing.assert_array_equal(back, x)
    if dtype not in ("int8", "uint8"):
        assert_same(bq.chain(*stages("tiled")[1:]), x, None)  # no head: codes are all there is


def test_many_values_kept_aside() -> None:
    """More than the first room for them holds, of values that do not repeat."""
    rng = np.random.default_rng(4)
    x = np.cumsum(rng.standard_normal(50 * 8192)).astype(np.float32).reshape(640, 640)
    bits = x.view(np.uint32)
    aside = rng.random(x.shape) < 0.4
    bits[aside] = 0x7FC00000 + rng.integers(0, 1 << 22, int(aside.sum()), dtype=np.uint32)
    assert_same(bq.chain(*stages("tiled")), x, 0.1)


def test_point_wise_bounds_go_through_tiles() -> None:
    x = np.exp(field((90, 133), "float32", holes=False))
    for preset in ("tiled", "tiled-outlier"):
        assert_same(bq.Pipeline.from_preset(preset), x, 1e-2, "pwrel")


@pytest.mark.parametrize("preset", ["tiled", "tiled-outlier", "tiled-fixed"])
def test_real_fields(preset: str, bundled_field: Path) -> None:
    x = np.load(bundled_field)
    blob = assert_same(bq.Pipeline.from_preset(preset), x, 1e-3, "rel")
    assert not bq.info(blob)["raw"]


def test_a_group_that_ends_at_codes() -> None:
    x = field((131, 157), "float32")
    pipe = bq.chain("linear-quantizer", "tile-order", "tiled-lorenzo")
    assert pipe.plan("float32", target="host", fusion="auto").forward.launches == 1
    made = {}
    for target, fusion in (("numpy", "off"), ("host", "off"), ("host", "auto")):
        run = pipe.executable("float32", target, fusion)
        record, values = run.forward(x.reshape(-1), bq.Bound(0.05), 2, shape=x.shape)
        out = np.empty(x.size, np.float32)
        run.inverse(values, record, run.lengths.stretch(x.shape), 2, out)
        codes = values["tiled-lorenzo", "out"]
        assert codes.shape == (136 * 160,)
        made[codes.tobytes(), values["linear-quantizer", "outliers"].words.tobytes(), out.tobytes()] = target
    assert len(made) == 1
    assert bounds.compare(x.reshape(-1), out, 0.05).ok


def test_stages_before_and_apart() -> None:
    """A predictor of the whole field before the tiles, tiles' modes on a port of their own, and a region in the array's order."""
    pipes = [
        (bq.chain("linear-quantizer", "lorenzo-nd", "tile-order", "plain-rate"), 2, "UNFUSABLE, a barrier (its prediction spans"),
        (bq.chain("linear-quantizer", "lorenzo-1d", "tile-order", "plain-rate"), 2, "only ELEMENTWISE stages may stand before"),
        (bq.chain("linear-quantizer", "tile-order", "adaptive-lorenzo", "outlier", sides=False), 1, ""),
    ]
    for pipe, launches, why in pipes:
        plan = pipe.plan("float32", target="host", fusion="auto")
        assert plan.forward.launches == launches
        assert why in plan.explain()
        for allocation in ("minimal", "preallocate"):
            x = field((131, 157), "float32")
            blob = assert_same(pipe, x, 0.05)
            made = pipe.compress(x, 0.05, target="host", fusion="off", allocation=allocation)
            assert bytes(made) == blob
            assert (
                bq.decompress(blob, target="host", fusion="off", allocation=allocation).tobytes() == bq.decompress(blob).tobytes()
            )


def test_two_sinks_of_different_lengths_and_a_fan_out() -> None:
    text = """
[[stage]]
use = "linear-quantizer"
[[stage]]
use = "tile-order"
[[stage]]
use = "plain-rate"
[[stage]]
use = "adaptive-bitplane"
[[edge]]
from = "in"
to = "linear-quantizer.in"
[[edge]]
from = "linear-quantizer.codes"
to = "tile-order.in"
[[edge]]
from = "tile-order.out"
to = "plain-rate.in"
[[edge]]
from = "linear-quantizer.codes"
to = "adaptive-bitplane.in"
"""
    x = field((131, 157), "float32")
    blob = assert_same(bq.Pipeline.from_toml(text), x, 0.25)
    elements = [s["elements"] for s in bq.info(blob)["segments"]]
    assert sorted(elements) == [131 * 157, 131 * 157, 136 * 160]
    assert bq.decompress(blob, region=slice(60, 70)).tobytes() == bq.decompress(blob)[60:70].tobytes()


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(PipelineError, match="both a LAYOUT"):
        bq.chain(
            "linear-quantizer", "tile-order", bq.discovery.registry().stage_class("tile-order").from_parameters({}), "plain-rate"
        )
    with pytest.raises((PipelineError, UnsupportedInput), match="tile-order"):
        bq.compress(np.zeros((9, 9), np.float32), 1e-3, pipeline=bq.chain("tile-order", "plain-rate"))


def test_searched_bounds_sample_boxes() -> None:
    x = np.sin(np.arange(1200)[:, None] / 40) * np.cos(np.arange(900) / 30).astype(np.float32) * 50
    run = bq.compress_run(x.astype(np.float32), target_ratio=12, mode="rel", pipeline="tiled", target="host")
    assert abs(run.search.achieved / 12 - 1) <= 0.03
    assert run.search.sample_elements < x.size
    psnr = bq.compress_run(x.astype(np.float32), target_psnr=70, mode="rel", pipeline="tiled-outlier", target="host")
    assert abs(psnr.search.achieved - 70) <= 0.5


def test_a_run_over_a_part_reads_no_more_than_it_needs() -> None:
    pipe = bq.Pipeline.from_preset("tiled")
    x = field((800, 640), "float32")
    run = pipe.executable("float32", "host", "auto")
    record, values = run.forward(x.reshape(-1), bq.Bound(0.05), 1, shape=x.shape)
    of = run.lengths.stretch(x.shape, 8192, 2 * 8192)
    cut = {}
    for port, value in values.items():
        begin, end, _ = run.lengths.place(port, of)
        assert isinstance(value, Chunked)
        cut[port] = value.cut(begin // 8192, -(-end // 8192))
    assert {port[0]: v.sizes.size for port, v in cut.items()} == {"linear-quantizer": 1, "plain-rate": 3}  # 3 rows of 80 tiles
    out = np.empty(8192, np.float32)
    run.inverse(cut, record, of, 1, out)
    whole = np.empty(x.size, np.float32)
    run.inverse(values, record, run.lengths.stretch(x.shape), 1, whole)
    assert out.tobytes() == whole[8192 : 2 * 8192].tobytes()


def test_another_shape_of_as_many_elements_is_refused() -> None:
    from briquette_conformance.resealing import edit_header

    blob = bytes(bq.compress(field((131, 157), "float32"), 0.05, pipeline="tiled"))
    other = edit_header(blob, lambda header: header.update(s=[157 * 131, 1]))
    with pytest.raises(ArchiveError, match="as they are laid out"):
        bq.decompress(other)

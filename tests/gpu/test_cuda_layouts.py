"""Pipelines with a LAYOUT on a GPU: the CPU's archives and values, parts, archives that stay there, captured runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery
from briquette.bounds import compare
from briquette.ports import numpy_dtype

pytestmark = pytest.mark.gpu

PRESETS = ("tiled", "tiled-outlier", "tiled-fixed")
NODES = {
    "tiled": ("linear-quantizer", "tile-order", "tiled-lorenzo", "plain-rate"),
    "tiled-outlier": ("linear-quantizer", "tile-order", "tiled-lorenzo", "outlier"),
    "tiled-fixed": ("linear-quantizer", "tile-order", "plain-rate"),
}
SHAPES = [(200_011,), (1031, 157), (512, 256), (71, 67, 59), (3, 40, 60, 47), (1, 300, 70), (1,), (700, 1)]


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def field(shape: tuple[int, ...], dtype: str, holes: bool = True) -> np.ndarray[Any, Any]:
    n = math.prod(shape)
    x = (np.cumsum(np.random.default_rng(n).standard_normal(n)) / 4).astype(np.int64 if "int" in dtype else np.float64)
    if holes and "float" in dtype and n > 100:
        x[[3, 77, n - 1]] = np.nan
        x[n // 2 : n // 2 + 40] = np.inf
        x[n // 3 : n // 3 + n // 9] = np.nan
        x[:: n // 7] = -3e4
    return x.astype(numpy_dtype(dtype)).reshape(shape)


def assert_same(x: np.ndarray[Any, Any], eb: float | None, mode: str, pipeline: Any) -> bytes:
    archive = bytes(bq.compress(x, eb, mode, pipeline=pipeline, target="numpy"))
    expected = bq.decompress(archive, target="numpy")
    for fusion in ("auto", "off"):
        made = bq.compress_run(x, eb, mode, pipeline=pipeline, target="cuda", fusion=fusion)
        assert made.archive == archive, f"fusion {fusion}: {len(made.archive)} bytes, not {len(archive)}"
        out = np.frombuffer(bytearray(b"\x01" * x.nbytes), x.dtype).reshape(x.shape)
        assert bq.decompress(archive, target="cuda", fusion=fusion, out=out).tobytes() == expected.tobytes(), f"fusion {fusion}"
    for part in (slice(0, 1), slice(x.shape[0] // 2, x.shape[0] // 2 + 9), slice(-3, None)):
        assert bq.decompress(archive, target="cuda", region=part).tobytes() == expected[part].tobytes(), part
    return archive


@pytest.mark.parametrize("preset", PRESETS)
def test_plans_are_one_launch_each_way(preset: str) -> None:
    plan = bq.Pipeline.from_preset(preset).plan("float32", target="cuda", fusion="auto")
    assert plan.forward.groups == plan.inverse.groups == (NODES[preset],)
    assert plan.forward.launches == plan.inverse.launches == 1
    staged = bq.Pipeline.from_preset(preset).plan("float32", target="cuda", fusion="off")
    assert staged.forward.launches == staged.inverse.launches == len(NODES[preset])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int16", "uint32", "int64"])
@pytest.mark.parametrize("preset", PRESETS)
def test_same_archives_and_values(preset: str, dtype: str, shape: tuple[int, ...]) -> None:
    x = field(shape, dtype)
    for eb, mode in ((1.0, "abs"), (1e-3, "rel")):
        if "int" not in dtype or mode == "abs":
            assert_same(x, eb, mode, preset)
    if "int" in dtype:
        assert_same(x, None, "abs", preset)


def test_selectors_transforms_and_the_first_code_aside() -> None:
    x = field((331, 457), "float32")
    for stages, sides in (
        (("tile-order", "adaptive-lorenzo", "outlier"), True),
        (("tile-order", "adaptive-lorenzo", "plain-rate"), False),
        (("zigzag", "tile-order", "tiled-lorenzo", "adaptive-bitplane"), True),
        (("lorenzo-1d", "outlier"), True),
        (("lorenzo-nd", "tile-order", "plain-rate"), True),
    ):
        assert_same(x, 0.1, "abs", bq.chain("linear-quantizer", *stages, sides=sides))


def test_residues_of_tiles() -> None:
    for rows, columns in [(128 + a, 64 + b) for a in range(9) for b in range(0, 9, 2)]:
        assert_same(field((rows, columns), "float32"), 0.05, "abs", "tiled")
    for shape in [(20 + a, 21 + b, 20 + c) for a, b, c in np.ndindex(2, 3, 5)]:
        assert_same(field(shape, "float64"), 0.05, "abs", "tiled-outlier")


@pytest.mark.parametrize("preset", PRESETS)
def test_archives_that_stay_on_the_device(preset: str) -> None:
    cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")
    for shape in [(1031, 157), (71, 67, 59), (300_001,)]:
        x = field(shape, "float32")
        archive = bq.compress_on_device(cupy.asarray(x), 0.05, pipeline=preset)
        blob = archive.to_bytes()
        assert blob == bytes(bq.compress(x, 0.05, pipeline=preset, target="numpy"))
        whole = bq.decompress(blob, target="numpy")
        rows = shape[0]
        for part in (
            slice(None),
            slice(0, 1),
            slice(rows // 3, rows // 3 + 17),
            slice(rows // 2, None),
            slice(-1, None),
            slice(5, 5),
        ):
            found = archive.decompress(region=part)
            assert cupy.asnumpy(cupy.asarray(found)).tobytes() == whole[part].tobytes(), (shape, part)


@pytest.mark.parametrize("mode", ["abs", "rel"])
@pytest.mark.parametrize("preset", PRESETS)
def test_captured_runs_follow_the_data(preset: str, mode: str) -> None:
    cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")
    rng = np.random.default_rng()
    x = cupy.zeros((331, 217), np.float32)
    captured = bq.Pipeline.from_preset(preset).capture(x, 1e-3, mode)
    for scale, holes in ((1.0, 0.0), (1e6, 0.0), (1e-6, 0.3), (10.0, 0.01), (0.0, 0.0)):
        data = (np.cumsum(rng.standard_normal(x.size)) * scale).astype(np.float32).reshape(x.shape)
        data[rng.random(x.shape) < holes] = np.nan
        x[:] = cupy.asarray(data)
        for _ in range(2):
            captured.compress()
            restored = cupy.asnumpy(cupy.asarray(captured.decompress()))
        expected = bytes(bq.compress(data, 1e-3, mode, pipeline=preset, target="numpy"))
        if bq.info(expected)["raw"]:  # a captured run codes all the same
            assert compare(data.reshape(-1), restored.reshape(-1), 1e-3).ok
        else:
            assert captured.archive().to_bytes() == expected
            assert restored.tobytes() == bq.decompress(expected, target="numpy").tobytes()

"""On a GPU: every geometry makes the same bytes, tuning keeps one of them, and bounds are found for arrays on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import briquette as bq

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")

COUNT = 70 * 8192 + 777


def field(dtype: str) -> np.ndarray[Any, Any]:
    x = np.cumsum(np.random.default_rng(6).standard_normal(COUNT)).astype(dtype)
    x[::997] = np.nan
    x[5000] = 2e37
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["fast", "planes", "zigzag"])
def test_every_geometry_makes_the_same_bytes(preset: str, dtype: str) -> None:
    x = field(dtype)
    expected = bytes(bq.compress(x, 1e-3, pipeline=preset, target="numpy"))
    whole = bq.decompress(expected, target="numpy").tobytes()
    run = bq.Pipeline.from_preset(preset).executable(dtype, "cuda", "auto")
    forward, inverse = run.plan.forward.steps[0], run.plan.inverse.steps[0]
    harness, target, chunk = run.harnesses[forward.harness], run.target, run.plan.chunk
    assert target is not None
    pipe = bq.Pipeline.from_preset(preset)
    mine = pipe.executable(dtype, "cuda", "auto")
    there = [harness.geometries(run.members(s, d), d, target, chunk) for s, d in ((forward, "forward"), (inverse, "inverse"))]
    assert len(there[0]) == len(there[1]) >= 2
    for one, other in zip(*there, strict=True):
        mine.install(forward, "forward", harness.program(run.members(forward, "forward"), "forward", target, chunk, one))
        mine.install(inverse, "inverse", harness.program(run.members(inverse, "inverse"), "inverse", target, chunk, other))
        archive = bq.compress_on_device(cupy.asarray(x), 1e-3, pipeline=pipe, fusion="auto")
        assert archive.to_bytes() == expected, one
        assert cupy.asnumpy(cupy.asarray(archive.decompress())).tobytes() == whole, other


@pytest.mark.parametrize("on_device", [False, True])
def test_tuning_measures_and_remembers(on_device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "cache"))
    x = field("float32")
    report = bq.Pipeline.from_preset("fast").tune(cupy.asarray(x) if on_device else x, 1e-3, target="cuda")
    assert [c.direction for c in report.choices] == ["forward", "inverse"]
    for choice in report.choices:
        assert choice.kept
        assert choice.default == "blocks 5"
        assert set(choice.seconds) == {f"blocks {n}" for n in (2, 3, 4, 5, 6)}
        assert all(0 < seconds < 1 for seconds in choice.seconds.values())
    assert bq.compress(cupy.asarray(x), 1e-3) == bq.compress(x, 1e-3, target="numpy")


@pytest.mark.parametrize(("kind", "wanted"), [("target_ratio", 6.0), ("target_psnr", 60.0)])
def test_a_bound_is_found_for_an_array_on_the_device(kind: str, wanted: float) -> None:
    x = np.cumsum(np.random.default_rng(6).standard_normal(COUNT)).astype(np.float32)
    result = bq.compress_run(cupy.asarray(x), **{kind: wanted})
    assert result.plan.target == "cuda"
    assert result.search is not None
    assert abs(result.search.achieved - wanted) <= (0.18 if kind == "target_ratio" else 0.5)
    assert result.archive == bq.compress(x, target="numpy", **{kind: wanted})

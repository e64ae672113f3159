"""Captured runs: replays follow the data, whatever its range, its values kept aside, and the stream."""

from __future__ import annotations

import numpy as np
import pytest

import briquette as bq
from briquette.bounds import compare
from briquette.errors import BriquetteError, PipelineError

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "uint32"])
@pytest.mark.parametrize("preset", ["fast", "planes", "zigzag"])
@pytest.mark.parametrize("mode", ["abs", "rel"])
def test_replays_follow_the_data(dtype: str, preset: str, mode: str) -> None:
    rng = np.random.default_rng()
    n = 70_001
    x = cupy.zeros(n, dtype)
    captured = bq.Pipeline.from_preset(preset).capture(x, 1e-3, mode)
    for scale, holes in ((1.0, 0.0), (1e6, 0.0), (1e-6, 0.3), (10.0, 0.01), (0.0, 0.0)):
        with np.errstate(over="ignore"):
            data = (np.cumsum(rng.standard_normal(n)) * scale).astype(np.int64 if "int" in dtype else dtype).astype(dtype)
        if data.dtype.kind == "f":
            data[rng.random(n) < holes] = np.nan
        x[:] = cupy.asarray(data)
        for _ in range(2):
            captured.compress()
            restored = cupy.asnumpy(cupy.asarray(captured.decompress()))
        expected = bytes(bq.compress(data, 1e-3, mode, pipeline=preset, target="numpy"))
        if bq.info(expected)["raw"]:  # a captured run codes all the same
            assert compare(data, restored, 1e-3).ok
        else:
            assert captured.archive().to_bytes() == expected
            assert restored.tobytes() == bq.decompress(expected, target="numpy").tobytes()


def test_a_stream_of_the_callers() -> None:
    x = cupy.asarray(np.cumsum(np.random.default_rng(3).standard_normal(50_000)).astype(np.float32))
    captured = bq.Pipeline.from_preset("fast").capture(x, 1e-2)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    captured.compress(stream)
    captured.decompress(stream)
    stream.synchronize()
    assert float(cupy.abs(cupy.asarray(captured.output) - x).max()) <= 1e-2


def test_what_cannot_be_captured_says_why() -> None:
    with pytest.raises(BriquetteError, match="lies in host memory"):
        bq.Pipeline.from_preset("fast").capture(np.zeros(10, np.float32), 1e-3)
    with pytest.raises(BriquetteError, match="needs an error bound"):
        bq.Pipeline.from_preset("fast").capture(cupy.zeros(10, cupy.float32))
    pipe = bq.Pipeline.from_toml(
        '[[stage]]\nuse="linear-quantizer"\n[[stage]]\nuse="lorenzo-1d"\n[stage.params]\nregion=100\n[[stage]]\nuse="plain-rate"\n'
    )
    with pytest.raises(PipelineError, match="only a plan of one kernel each way"):
        pipe.capture(cupy.zeros(1000, cupy.float32), 1e-3)

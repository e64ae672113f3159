"""Point-wise relative bounds: every preset serves them, fused, with one archive on every target; judged in fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import FUSED, PRESETS, REFERENCE, STAGED, WAYS, assert_plan, assert_same_sinks, bits, compressed, restored

import briquette as bq
from briquette.errors import UsageError
from briquette.ports import Chunked
from briquette.record import Bound, RunRecord

FLOATS = ("float32", "float64")
NODES = {preset: ("log-quantizer", *nodes[1:]) for preset, nodes in PRESETS.items()}


def assert_point_wise(x: NDArray[Any], y: NDArray[Any], eb: float) -> None:
    """Every finite value within `eb` of itself; zeros, NaN and infinities bit for bit."""
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    exact = ~np.isfinite(x.reshape(-1)) | (x.reshape(-1) == 0)
    assert np.array_equal(bits(x)[exact], bits(y)[exact]), "a zero, a NaN or an infinity changed"
    a, b = x.reshape(-1)[~exact], y.reshape(-1)[~exact]
    assert np.array_equal(np.signbit(a), np.signbit(b))
    low, high = np.minimum(np.abs(a), np.abs(b)).astype(np.longdouble), np.maximum(np.abs(a), np.abs(b)).astype(np.longdouble)
    miss = (high - low) / np.abs(a)
    worst = np.argpartition(miss, -300)[-300:] if miss.size > 300 else np.arange(miss.size)
    for i in worst.tolist():
        assert abs(Fraction(float(a[i])) - Fraction(float(b[i]))) <= Fraction(eb) * abs(Fraction(float(a[i]))), (a[i], b[i], eb)


def field(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """A field of many magnitudes that changes sign, with zeros of both signs, specials and subnormals."""
    info = np.finfo(dtype)
    scale = np.exp(np.cumsum(rng.normal(0.0, 0.1, n)))
    x = (scale * np.sin(np.arange(n) / 40 + rng.uniform(0, 6))).astype(dtype)
    for value in (0.0, -0.0, np.nan, np.inf, -np.inf, info.smallest_subnormal, -17 * info.smallest_subnormal, info.max, info.min):
        x[rng.integers(0, max(n, 1), n // 300)] = value
    if n > 900:
        at = int(rng.integers(n - 200))
        x[at : at + 100] = 0.0
        x[at + 100 : at + 160] = np.nan
    return x


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fuse_as_for_other_modes(preset: str) -> None:
    pipe = bq.Pipeline.from_preset(preset)
    for way in WAYS:
        assert_plan(pipe.plan("float32", way.target, way.fusion, "pwrel"), way, NODES[preset])
        assert_plan(pipe.plan("float32", way.target, way.fusion), way, PRESETS[preset])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("preset", PRESETS)
def test_sinks_of_counts(preset: str, dtype: str, rng: np.random.Generator) -> None:
    pipe = bq.Pipeline.from_preset(preset).variant(dtype, Bound(1e-2, "pwrel"))
    runs = [pipe.executable(dtype, way.target, way.fusion) for way in WAYS]
    for n in [*range(1, 66), *range(250, 262), 511, 513, 8191, 8192, 8193, 3 * 8192 + 5]:
        x = field(rng, n, dtype)
        assert_point_wise(x, assert_same_sinks(runs, x, Bound(1e-2, "pwrel")), 1e-2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("eb", [0.9, 0.1, 1e-3, 1e-5, 1e-9, 1e-300])
def test_archives_are_the_same_everywhere(eb: float, dtype: str, rng: np.random.Generator) -> None:
    x = field(rng, 40_003, dtype)
    x[::5000] = np.frombuffer(rng.bytes(9 * x.itemsize), dtype)
    for values in (x, np.frombuffer(rng.bytes(9000 * x.itemsize), dtype), x[1:], x[:40_000].reshape(100, -1).T):
        blobs = {bytes(compressed(values, eb, "pwrel", "fast", way, threads).archive) for way in WAYS for threads in (1, 3)}
        assert len(blobs) == 1
        blob = blobs.pop()
        back = {restored(blob, values, way, threads).array.tobytes() for way in WAYS for threads in (1, 3)}
        assert len(back) == 1
        y = bq.decompress(blob)
        assert_point_wise(values, y, eb)
        report = bq.verify(blob, values)
        assert (report.ok, report.eb) == (True, 0.0 if bq.info(blob)["raw"] else eb)


def test_real_fields(bundled_field: Path) -> None:
    x = np.load(bundled_field)
    for eb in (1e-1, 1e-3):
        blobs = {bytes(bq.compress(x, eb, "pwrel", target=way.target, fusion=way.fusion)) for way in WAYS}
        assert len(blobs) == 1
        y = bq.decompress(blobs.pop())
        assert_point_wise(x, y, eb)


def test_parts(rng: np.random.Generator) -> None:
    x = field(rng, 60_000, "float32").reshape(600, 100)
    blob = bq.compress(x, 1e-2, "pwrel")
    whole = bq.decompress(blob)
    for way in WAYS:
        assert bq.decompress(blob, region=slice(131, 420), target=way.target).tobytes() == whole[131:420].tobytes()
        assert bq.decompress(blob, flat=slice(8190, 8195), target=way.target).tobytes() == whole.reshape(-1)[8190:8195].tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_codes_that_nothing_writes_decode_alike(dtype: str, rng: np.random.Generator) -> None:
    """Damage that checksums do not see: any bits as codes, under any state that is let through."""
    pipe = bq.chain("log-quantizer")
    codes = np.frombuffer(rng.bytes(8192 * np.dtype(dtype).itemsize), "int32" if dtype == "float32" else "int64")
    none = Chunked(np.zeros(1, np.uint32), np.empty(0, np.uint32))
    for step, center, low, span, base in ((2e-3, -1e-6, -5000, 9000, 17), (1e300, 0.0, 0, 0, 0), (-0.5, 1e308, 3, -4, 2**28)):
        state = {"eb": 1e-3, "quant_step": step, "inverse_step": 1.0, "center": center}
        state |= {"low": low, "span": span, "base": base, "fill_code": 0}
        made = set()
        for way in (REFERENCE, FUSED, STAGED):
            out = np.empty(8192, dtype)
            sinks = {("log-quantizer", "codes"): codes, ("log-quantizer", "outliers"): none}
            run = pipe.executable(dtype, way.target, way.fusion)
            made.add(run.inverse(sinks, RunRecord({"log-quantizer": dict(state)}), 8192, 1, out).tobytes())
        assert len(made) == 1


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match=r"error bound 1\.0 of mode 'pwrel' must be below 1"):
        bq.compress(np.ones(100), 1.0, "pwrel")
    with pytest.raises(UsageError, match="'linear-quantizer' serves 'abs', 'rel'; presets that serve 'pwrel': adaptive, archive"):
        bq.compress(np.ones(100), 0.1, "pwrel", pipeline=bq.chain("linear-quantizer", "plain-rate"))
    with pytest.raises(UsageError, match="its stage 'log-quantizer' serves 'pwrel'; presets that serve 'rel': adaptive, archive"):
        bq.compress(np.ones(100), 0.1, "rel", pipeline=bq.chain("log-quantizer", "plain-rate"))

"""Element types with modes of the bound and missing values: what serves them does so alike everywhere, what does not says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.errors import PipelineError, UsageError
from briquette.ports import numpy_dtype

pytest.importorskip("ml_dtypes", reason="bfloat16 comes from ml_dtypes")

NARROW = ("float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FILLS = (1e20, -9999.0)


def ways() -> list[tuple[str, str]]:
    missing = discovery.registry().target("host").unavailable()
    return [("numpy", "off"), *([] if missing else [("host", "force"), ("host", "off")])]


def holes(dtype: str, n: int) -> NDArray[Any]:
    """A smooth field with NaN of two payloads, infinities, and runs of fill values."""
    rng, kind = np.random.default_rng(n), numpy_dtype(dtype)
    x = (np.cumsum(rng.normal(0, 0.02, n)) + 3).astype(kind)
    with np.errstate(over="ignore"):
        kinds = np.array([np.nan, np.inf, *FILLS, -np.inf]).astype(kind)
    for begin in (0, n - 1, *rng.integers(0, n, n // 100)):
        x[begin : begin + int(rng.choice([1, 30, 300]))] = kinds[rng.integers(kinds.size)]
    x.view(np.uint16)[rng.integers(0, n, n // 500)] = kinds.view(np.uint16)[0] + 3
    return x


def round_trip(x: NDArray[Any], eb: float, mode: str, pipeline: Any, fills: Any) -> tuple[bytes, NDArray[Any]]:
    """One archive and one reconstruction on every target, fused and staged."""
    runs = [bq.compress_run(x, eb, mode, pipeline=pipeline, target=t, fusion=f, fill_value=fills) for t, f in ways()]
    blobs = {bytes(run.archive) for run in runs}
    assert len(blobs) == 1, "archives differ"
    blob = blobs.pop()
    backs = {np.asarray(bq.decompress(blob, target=t, fusion=f)).tobytes() for t, f in ways()}
    assert len(backs) == 1, "reconstructions differ"
    assert bq.verify(blob, x).ok
    return blob, np.frombuffer(backs.pop(), x.dtype)


@pytest.mark.parametrize("mode", ["abs", "rel"])
@pytest.mark.parametrize("fills", [None, 1e20, FILLS])
@pytest.mark.parametrize("dtype", NARROW)
def test_holes_and_fill_values_of_narrow_floats(dtype: str, fills: Any, mode: str) -> None:
    stated = () if fills is None else np.atleast_1d(fills)
    for n in (1, 31, 257, 5000, 3 * 8192 + 77):
        x = holes(dtype, n)
        _, back = round_trip(x, 1e-2, mode, "masked", fills)
        with np.errstate(over="ignore"):
            given = np.array([*stated]).astype(x.dtype).view(np.uint16)
        exact = np.isin(x.view(np.uint16), given) | ~np.isfinite(x)
        assert np.array_equal(back.view(np.uint16)[exact], x.view(np.uint16)[exact])
        wide, near = x.astype(np.float64)[~exact], back.astype(np.float64)[~exact]
        span = float(np.ptp(wide)) if wide.size else 0.0
        assert np.abs(wide - near).max(initial=0.0) <= 1e-2 * (span if mode == "rel" else 1.0)


@pytest.mark.parametrize("dtype", NARROW)
def test_fill_values_do_not_count_in_the_range_of_narrow_floats(dtype: str) -> None:
    x = np.sin(np.arange(20_000) / 90).astype(numpy_dtype(dtype))
    x[100:300] = -9999
    assert float(bq.compress_run(x, 1e-2, "rel", pipeline="masked").eb) > 1
    run = bq.compress_run(x, 1e-2, "rel", pipeline="masked", fill_value=-9999)
    assert 0.0199 < float(run.eb) <= 0.02
    assert run.outliers == 200


@pytest.mark.parametrize("preset", ["fast", "adaptive", "masked"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int32", "uint64"])
def test_point_wise_relative_bounds_are_for_wide_floats(dtype: str, preset: str) -> None:
    x = np.arange(1, 100).astype(numpy_dtype(dtype))
    wide = "float32" if dtype in NARROW else "float64"
    if preset == "masked" and dtype not in NARROW:
        with pytest.raises(UsageError, match="'integer-quantizer' serves 'abs', 'rel'; presets that serve 'pwrel': lossless"):
            bq.compress(x, 1e-2, "pwrel", pipeline=preset)
        return
    with pytest.raises(
        PipelineError, match=rf"float32 or float64 values, not .*{dtype}; convert .* x.astype\(numpy.{wide}\), or give"
    ):
        bq.compress(x, 1e-2, "pwrel", pipeline=preset)


def test_integers_have_no_point_wise_bound_and_truth_values_none_at_all() -> None:
    with pytest.raises(UsageError, match="'integer-quantizer' serves 'abs', 'rel'; presets that serve 'pwrel': lossless"):
        bq.compress(np.arange(9, dtype=np.int16), 0.1, "pwrel", pipeline=bq.chain("integer-quantizer", "plain-rate"))
    x = np.arange(20_000) % 7 == 0
    assert np.array_equal(bq.decompress(bq.compress(x, 0.1, "pwrel")), x)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_have_no_fill_values(dtype: str) -> None:
    for preset in ("fast", "masked"):
        with pytest.raises(
            UsageError, match=f"no stage of this pipeline takes fill values .* no installed preset does for {dtype}"
        ):
            bq.compress(np.arange(9, dtype=dtype), 1, pipeline=preset, fill_value=3)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_lowest_integer_is_no_hole(dtype: str) -> None:
    x = np.cumsum(np.random.default_rng(4).integers(-2, 3, 20_000)).astype(dtype)
    x[::1000] = np.iinfo(dtype).min
    blob = bq.compress(x, pipeline="masked")
    assert np.array_equal(bq.decompress(blob), x)
    with pytest.raises(PipelineError, match="integers go to stage integer-quantizer"):
        bq.compress(x, 1, pipeline=bq.chain("masked-quantizer", "forward-fill", "plain-rate"))


@pytest.mark.parametrize("sides", [True, False])
def test_a_stand_in_leaves_the_tiles_where_they_are(sides: bool) -> None:
    pipe = bq.chain("linear-quantizer", "adaptive-lorenzo", "plain-rate", sides=sides)
    x = np.cumsum(np.random.default_rng(2).integers(-9, 10, 50_000)).astype(np.int32)
    suited = pipe.variant("int32", None)
    assert list(suited.graph.nodes) == ["integer-quantizer", "adaptive-lorenzo", "plain-rate"]
    assert (("adaptive-lorenzo", "tiles") in suited.graph.sinks) is not sides
    blobs = {bytes(bq.compress(x, pipeline=pipe, target=t, fusion=f)) for t, f in ways()}
    assert len(blobs) == 1
    assert np.array_equal(bq.decompress(blobs.pop()), x)


def test_alternatives_come_before_stand_ins() -> None:
    pipe = bq.Pipeline("mine")
    head = pipe.add("log-quantizer")
    pipe.add("plain-rate")
    pipe.when(head, "linear-quantizer", modes=("abs", "rel", "none"))
    assert list(pipe.variant("int32", bq.Bound(3)).graph.nodes) == ["integer-quantizer", "plain-rate"]
    assert list(pipe.variant("float32", bq.Bound(3)).graph.nodes) == ["linear-quantizer", "plain-rate"]
    assert pipe.variant("float32", bq.Bound(0.1, "pwrel")) is pipe
    assert list(pipe.variant("bool", bq.Bound(0.1, "pwrel")).graph.nodes) == ["integer-quantizer", "plain-rate"]
    assert pipe.variant("int32", None).title == "mine"

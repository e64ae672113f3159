"""Fields with holes: what they cost, what comes back bit for bit, and that every target makes the same of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import WAYS, assert_bound, assert_plan, assert_same_sinks, bits, compressed, restored

import briquette as bq
from briquette.errors import UsageError
from briquette.record import Bound

FLOATS = ("float32", "float64")
NODES = ("masked-quantizer", "forward-fill", "lorenzo-1d", "plain-rate")
FILLS = (1e20, -9999.0)


def smooth(rng: np.random.Generator, n: int, waves: float) -> NDArray[np.float64]:
    """A Gaussian field of shape (n, n) whose spectrum ends at about `waves` waves across."""
    k = np.hypot(np.fft.fftfreq(n)[:, None] * n, np.fft.rfftfreq(n)[None, :] * n)
    field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((n, n))) * np.exp(-((k / waves) ** 2)), s=(n, n))
    return np.asarray(field / field.std())


def blobs(rng: np.random.Generator, n: int, waves: float, share: float) -> NDArray[np.bool_]:
    field = smooth(rng, n, waves)
    return np.asarray(field < np.quantile(field, share))


def holed(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """A walk with holes of every kind in it: NaN of two payloads, an infinity and both fill values, at both ends too."""
    x = (np.cumsum(rng.normal(0, 0.02, n)) + 3).astype(dtype)
    odd = np.array(np.nan, dtype).view(f"u{x.itemsize}") + x.view(f"u{x.itemsize}").dtype.type(9)
    kinds = [np.array(v, dtype).view(odd.dtype) for v in (np.nan, np.inf, *FILLS)] + [odd]
    for begin in (0, max(n - 3, 0), *rng.integers(0, max(n, 1), n // 60)):
        length = int(rng.choice([1, 2, 30, 300]))
        x.view(odd.dtype)[begin : begin + length] = kinds[rng.integers(len(kinds))]
    return x


def is_hole(x: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(~np.isfinite(x) | np.isin(bits(x).reshape(x.shape), [bits(np.array([v], x.dtype))[0] for v in FILLS]))


@pytest.mark.parametrize(("mode", "eb"), [("rel", 1e-2), ("rel", 1e-3), ("rel", 1e-4), ("pwrel", 1e-2)])
@pytest.mark.parametrize("waves", [6, 20])
@pytest.mark.parametrize("fill", [np.nan, 1e20])
def test_blobs_cost_their_outline(fill: float, waves: float, mode: str, eb: float, rng: np.random.Generator) -> None:
    """At most 1.05 times what the whole field costs, and 0.15 bit an element."""
    n = 1024
    x = smooth(rng, n, 12).astype(np.float32)
    y = x.copy()
    y[blobs(rng, n, waves, 0.7)] = fill
    whole = len(bq.compress(x, eb, mode, pipeline="masked"))
    blob = bq.compress(y, eb, mode, pipeline="masked", fill_value=fill)
    assert bq.verify(blob, y).ok
    assert len(blob) <= 1.05 * whole + 0.15 / 8 * n * n
    if waves == 6 and np.isnan(fill):  # and less than without the fill, where they are blobs rather than noise
        assert len(blob) < 0.95 * len(bq.compress(y, eb, mode, pipeline="fast"))


def test_a_field_filled_by_hand_costs_the_same(rng: np.random.Generator) -> None:
    """The holes of a field add no more than 0.15 bit an element to what it costs with them filled, left edge by left edge."""
    n = 1024
    x, hole = smooth(rng, n, 12).astype(np.float32), blobs(rng, n, 6, 0.7)
    rows, holes = x.reshape(-1, 256), hole.reshape(-1, 256)
    at = np.maximum.accumulate(np.where(holes, -1, np.arange(256)), axis=1)
    at = np.where(at < 0, (~holes).argmax(axis=1)[:, None], at)
    by_hand = np.where(holes.all(axis=1)[:, None], np.float32(0), np.take_along_axis(rows, at, axis=1)).reshape(n, n)
    y = np.where(hole, np.float32(np.nan), x)
    assert len(bq.compress(y, 3e-3, pipeline="masked")) <= len(bq.compress(by_hand, 3e-3, pipeline="fast")) + 0.15 / 8 * n * n


@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
def test_plans_are_one_launch_each_way(mode: str) -> None:
    nodes = ("masked-log-quantizer", *NODES[1:]) if mode == "pwrel" else NODES
    for way in WAYS:
        assert_plan(bq.Pipeline.from_preset("masked").plan("float32", way.target, way.fusion, mode), way, nodes)


@pytest.mark.parametrize("fills", [(), FILLS], ids=["plain", "fills"])
@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sinks_of_counts(dtype: str, mode: str, fills: tuple[float, ...], rng: np.random.Generator) -> None:
    bound = Bound(1e-2, mode)
    pipe = bq.Pipeline.from_preset("masked").variant(dtype, bound, fills)
    runs = [pipe.executable(dtype, way.target, way.fusion) for way in WAYS]
    for n in [*range(1, 40), 63, 64, 65, 255, 256, 257, 511, 513, 8191, 8192, 8193, 3 * 8192 + 5]:
        x = holed(rng, n, dtype)
        y = assert_same_sinks(runs, x, bound)
        exact = is_hole(x) if fills else ~np.isfinite(x)
        assert np.array_equal(bits(x)[exact], bits(y)[exact])
        if mode == "abs":
            assert_bound(x[~exact], y[~exact], 1e-2)


@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_archives_are_the_same_everywhere(dtype: str, mode: str, rng: np.random.Generator) -> None:
    x = holed(rng, 60_000, dtype).reshape(600, 100)
    pipe = bq.Pipeline.from_preset("masked").variant(dtype, Bound(1e-3, mode), FILLS)
    made = {bytes(compressed(x, 1e-3, mode, pipe, way, threads).archive) for way in WAYS for threads in (1, 3)}
    made.add(bytes(bq.compress(x, 1e-3, mode, pipeline="masked", fill_value=FILLS)))
    assert len(made) == 1
    blob = made.pop()
    assert bq.info(blob)["stages"][0]["parameters"]["fill_values"] == "1e+20 -9999.0"
    whole = bq.decompress(blob)
    holes = is_hole(x)
    assert np.array_equal(bits(x)[holes.reshape(-1)], bits(whole)[holes.reshape(-1)])
    assert bq.verify(blob, x).ok
    if mode == "rel":  # of the range of what is there
        there = x[~holes].astype(np.longdouble)
        assert np.abs(there - whole[~holes]).max() <= 1e-3 * (there.max() - there.min())
        assert bq.compress_run(x, 1e-3, mode, pipeline="masked").eb > 1e16  # type: ignore[operator]
    for way in WAYS:
        assert restored(blob, x, way, 3).array.tobytes() == whole.tobytes()
        assert bq.decompress(blob, region=slice(131, 420), target=way.target).tobytes() == whole[131:420].tobytes()
        assert bq.decompress(blob, flat=slice(8190, 8195), target=way.target).tobytes() == whole.reshape(-1)[8190:8195].tobytes()


def test_verify_wants_fill_values_bit_for_bit() -> None:
    """A neighbour of the fill value, within the bound of it, in its place."""
    x = np.linspace(1, 2, 5000, dtype=np.float32)
    x[700:800] = 1e20
    other = x.copy()
    other[750] = np.nextafter(x[750], np.float32(0))
    blob = bq.compress(other, 1e15, "abs", pipeline="masked", fill_value=1e20)
    assert bq.verify(blob, other).ok
    report = bq.verify(blob, x).bound
    assert report is not None
    assert (report.violations, report.specials_changed, report.first_violation) == (0, 1, 750)


def test_real_fields(bundled_field: Path) -> None:
    x = np.load(bundled_field)
    made = {bytes(bq.compress(x, 1e-3, "rel", pipeline="masked", target=w.target, fusion=w.fusion)) for w in WAYS}
    assert len(made) == 1
    assert bq.verify(made.pop(), x).ok


@pytest.mark.parametrize("x", [np.full(5000, np.nan), np.full(5000, 1e20), np.zeros(0), np.full((), np.nan), np.array([1e20])])
@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
def test_nothing_there(x: NDArray[Any], mode: str) -> None:
    made = {bytes(bq.compress(x, 0.1, mode, pipeline="masked", fill_value=1e20, target=w.target, fusion=w.fusion)) for w in WAYS}
    assert len(made) == 1
    assert bq.decompress(made.pop()).tobytes() == x.tobytes()


def test_fill_values_from_callers() -> None:
    x = np.linspace(1, 2, 4000, dtype=np.float32)
    x[100:900] = 1e20
    expected = bq.compress(x, 1e-3, "rel", pipeline="masked", fill_value=1e20)
    for same in ([1e20], (1e20, 1e20, np.nan), np.array([1e20]), np.float32(1e20), "pipeline"):
        if isinstance(same, str):
            stage: Any = bq.Pipeline.from_preset("masked").to_toml().replace('fill_values = ""', "fill_values = 1e20")
            assert bq.compress(x, 1e-3, "rel", pipeline=bq.Pipeline.from_toml(stage)) == expected
        else:
            blob = bq.compress(x, 1e-3, "rel", pipeline="masked", fill_value=same)
            assert bq.decompress(blob).tobytes() == bq.decompress(expected).tobytes()
    assert bq.compress(x, 1e-3, fill_value=np.nan) == bq.compress(x, 1e-3)  # NaN is missing everywhere
    for wrong in ("1e20", True, [[1.0]], 10**400, b"1"):
        with pytest.raises(UsageError, match="is not a number that a float holds"):
            bq.compress(x, 1e-3, pipeline="masked", fill_value=wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="5 values; it takes at most 4"):
        bq.compress(x, 1e-3, pipeline="masked", fill_value=(1, 2, 3, 4, 5))
    with pytest.raises(
        UsageError, match=r"no stage of this pipeline takes fill values .*; use one of the presets that do: masked"
    ):
        bq.compress(x, 1e-3, fill_value=1e20)

"""Cases A: values where rounding decides, bounds in every spelling, bounds finer than the data."""

from __future__ import annotations

import math
from pathlib import Path

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE
from click.testing import CliRunner

import briquette as bq
from briquette_cli.main import cli


@pytest.mark.parametrize(
    ("dtype", "first", "count", "eb"),
    [("float64", 5_000_000, 400_000, 1e-5), ("float32", 0, 400_000, 1e-2), ("float32", 0, 400_000, 1e-3)],
)
def test_a1_values_midway_between_code_points(dtype: str, first: int, count: int, eb: float) -> None:
    k = np.arange(first, first + count, dtype=np.float64)
    casekit.check(((2 * k + 1) * eb).astype(dtype), eb, "abs", PRESETS)


def midway_field() -> np.ndarray:
    """float32 values of A1 at 1e-3, some a unit in the last place off: the nearest float32 above 1e-3 would let one through."""
    k = np.arange(20_000, dtype=np.float64)
    values = ((2 * k + 1) * 1e-3).astype(np.float32)
    values[1::3] = np.nextafter(values[1::3], np.float32(np.inf))
    values[2::3] = np.nextafter(values[2::3], np.float32(-np.inf))
    return values


@pytest.mark.parametrize("mode", ["abs", "rel"])
def test_a2_one_bound_from_every_front_end(mode: str, tmp_path: Path) -> None:
    x = midway_field()
    source, text = tmp_path / "x.npy", bq.Pipeline.from_preset("fast").to_toml()
    np.save(source, x)
    in_toml = tmp_path / "bounded.toml"
    in_toml.write_text(f'{text}\n[bound]\neb = 1e-3\nmode = "{mode}"\n', encoding="utf-8")

    def on_the_command_line(*options: str | Path) -> bytes:
        output = tmp_path / "x.bq"
        done = CliRunner().invoke(cli, ["compress", str(source), "--force", "-o", str(output), *map(str, options)])
        assert done.exit_code == 0, done.output
        return output.read_bytes()

    expected = bytes(bq.compress(x, 1e-3, mode))
    spelled = {
        "API, NumPy scalar": bytes(bq.compress(x, np.float64(1e-3), mode)),
        "API, bound in the pipeline": bytes(bq.Pipeline.from_toml(in_toml).compress(x)),
        "API, pipeline's file": bytes(bq.compress(x, pipeline=in_toml)),
        **{f"CLI, {eb}": on_the_command_line("--eb", eb, "--mode", mode) for eb in ("1e-3", "0.001", "1.0E-03", "100e-5")},
        "CLI, bound in the pipeline": on_the_command_line("--pipeline", in_toml),
    }
    assert {name for name, blob in spelled.items() if blob != expected} == set()
    assert bq.info(expected)["bound"] == {"mode": mode, "eb": 1e-3}
    limit = 1e-3 if mode == "abs" else float(casekit.Fraction(1e-3) * casekit.exact_range(x))
    casekit.assert_bound(x, bq.decompress(expected), limit)


def test_a2_a_float32_bound_is_the_number_it_is_and_no_other() -> None:
    x = midway_field()
    single = np.float32(1e-3)  # above 1e-3, by 4.7e-11
    blob = bq.compress(x, single)
    assert bq.info(blob)["bound"]["eb"] == float(single) != 1e-3
    assert bq.info(bq.compress(x, 1e-3))["state"]["linear-quantizer"]["eb"] == 1e-3
    casekit.assert_bound(x, bq.decompress(blob), float(single))


def lognormal() -> np.ndarray:
    return np.exp(np.random.default_rng(4).normal(0, 2.5, (64, 64, 64))).astype(np.float32)


def smooth(*shape: int) -> np.ndarray:
    z, y, x = (np.linspace(0, end, n) for end, n in zip((20.0, 9.0, 1.0), shape, strict=True))
    return np.sin(z)[:, None, None] * np.cos(y)[None, :, None] + x


def test_a4_wide_dynamic_range_below_the_values_spacing() -> None:
    trips = casekit.check(lognormal(), 2.0**-44, "abs", PRESETS, coded=False)
    for trip in trips.values():
        assert trip.result.raw
        assert bq.info(trip.blob)["raw"]
        assert np.array_equal(casekit.bits(trip.restored), casekit.bits(lognormal()))


def test_a4_lognormal_is_never_worse_when_the_bound_tightens() -> None:
    x = lognormal()
    largest, size = math.inf, 0
    for exponent in range(-1, -46, -4):
        trip = casekit.check(x, 2.0**exponent, "abs", wanted=(FUSED, REFERENCE), coded=None)["fast"]
        error = float(np.abs(x.astype(np.float64) - trip.restored).max())
        assert error <= largest
        assert len(trip.blob) >= size  # no bound makes a detour: finer is never smaller here, nor above raw size
        largest, size = error, len(trip.blob)
    assert trip.result.raw


@pytest.mark.parametrize("eb", [1e-15, 2.5e-16, 1e-18, 1e-300])
def test_a4_smooth_float64(eb: float) -> None:
    x = smooth(128, 128, 256)
    trip = casekit.check(x, eb, "abs", wanted=(REFERENCE, FUSED), coded=None)["fast"]
    if eb < 3e-16:  # half the spacing of values near 2: they cannot all be codes any more, and the result says so
        assert trip.result.raw or trip.result.outliers > 0
    if trip.result.raw:
        assert np.array_equal(casekit.bits(trip.restored), casekit.bits(x))


def test_a4_halving_down_to_1e_300_never_makes_it_worse() -> None:
    x = smooth(16, 16, 64)
    eb, largest, said = 1e-15, math.inf, False
    while eb > 1e-300:
        trip = casekit.round_trip(x, eb, "abs", "fast", casekit.ways()[-1])
        casekit.assert_bound(x, trip.restored, eb)
        error = float(np.abs(x - trip.restored).max())
        assert error <= largest, f"halving the bound to {eb!r} raised the largest error to {error!r}"
        keeps = trip.result.raw or trip.result.outliers > 0
        assert keeps or not said, f"at {eb!r} values are no longer said to be kept exactly"
        largest, said, eb = error, keeps, eb / 2
    assert said
    assert largest == 0.0

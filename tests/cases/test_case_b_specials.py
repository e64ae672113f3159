"""Cases B: NaN, infinities, negative zero, denormals, sentinels, and what a range-relative bound is then relative to."""

from __future__ import annotations

import re
from fractions import Fraction

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE
from click.testing import CliRunner

import briquette as bq
from briquette_cli.main import cli

SPANS = (32, 64, 256, 1024, 4096)


def sine(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.sin(np.arange(int(np.prod(shape))) / 40).astype(dtype).reshape(shape)


def blobs(count: int, share: float) -> np.ndarray:
    """Flags in runs of 50 to 400 elements that cover `share` of `count`."""
    rng = np.random.default_rng(round(1000 * share))
    flags = np.zeros(count, bool)
    while flags.mean() < share:
        at = int(rng.integers(count))
        flags[at : at + int(rng.integers(50, 400))] = True
    return flags


@pytest.mark.parametrize("share", [0.01, 0.32, 0.70])
@pytest.mark.parametrize("shape", [(100_000,), (64, 64, 64)], ids=str)
@pytest.mark.parametrize(("eb", "mode"), [(1e-3, "abs"), (1e-2, "rel")])
def test_b1_nan_in_blobs(shape: tuple[int, ...], share: float, eb: float, mode: str) -> None:
    whole = sine(*shape)
    holes = blobs(whole.size, share).reshape(shape)
    x = whole.copy()
    x[holes] = np.nan
    clean = casekit.check(whole, eb, mode, PRESETS, wanted=(FUSED, REFERENCE))
    for preset, trip in casekit.check(x, eb, mode, PRESETS).items():
        assert trip.result.outliers == holes.sum()
        # one run of positions and one value a blob: a field with holes takes at most a hundredth more than without
        assert len(trip.blob) <= 1.01 * len(clean[preset].blob)


@pytest.mark.parametrize("share", [0.01, 0.32, 0.70])
def test_b1_payloads_that_all_differ_cost_themselves_and_little_more(share: float) -> None:
    whole = sine(100_000)
    holes = blobs(whole.size, share)
    x = whole.copy()
    quiet = 0x7FC00000 | np.random.default_rng(1).integers(0, 1 << 22, int(holes.sum()), dtype=np.uint32)
    x.view(np.uint32)[holes] = quiet
    clean = casekit.check(whole, 1e-3, "abs", PRESETS, wanted=(FUSED, REFERENCE))
    for preset, trip in casekit.check(x, 1e-3, "abs", PRESETS).items():
        assert trip.result.outliers == holes.sum()
        assert np.array_equal(casekit.bits(trip.restored)[holes], quiet)
        assert len(trip.blob) <= 1.01 * len(clean[preset].blob) + 4 * holes.sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_b2_one_special_value_at_the_edges_of_every_span(special: float, dtype: str) -> None:
    base = sine(3 * 8192 + 77, dtype=dtype)
    alone = {p: t.restored for p, t in casekit.check(base, 1e-3, "abs", PRESETS, wanted=(FUSED, REFERENCE)).items()}
    for span in SPANS:
        for at in (span, 2 * span - 1):  # the first and the last element of the second span
            x = base.copy()
            x[at] = special
            for preset, trip in casekit.check(x, 1e-3, "abs", PRESETS, wanted=(FUSED, REFERENCE)).items():
                assert trip.result.outliers == 1
                others = np.delete(casekit.bits(trip.restored), at)
                assert np.array_equal(others, np.delete(casekit.bits(alone[preset]), at)), f"{span}: neighbours moved"


@pytest.mark.parametrize("edge", [0, -1], ids=["first element", "last element"])
def test_b2_all_three_specials_together(edge: int) -> None:
    x = sine(2 * 8192)
    for span, special in ((32, np.nan), (256, np.inf), (4096, -np.inf)):
        x[span * np.arange(1, x.size // span) + edge] = special
    x[edge] = np.nan
    kept = int((~np.isfinite(x)).sum())
    for trip in casekit.check(x, 1e-3, "rel", PRESETS).values():
        assert trip.result.outliers == kept


@pytest.mark.parametrize("where", ["first", "middle", "last", "all"])
def test_b2_a_chunk_of_nothing_but_nan(where: str) -> None:
    x = sine(4 * 8192)
    chunk = {"first": slice(0, 8192), "middle": slice(8192, 16384), "last": slice(-8192, None), "all": slice(None)}[where]
    x[chunk] = np.nan
    for mode in ("abs", "rel"):
        for trip in casekit.check(x, 1e-2, mode, PRESETS).values():
            assert trip.result.outliers == np.isnan(x).sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("values", "span"), [([1, 2, np.nan], 1.0), ([1, np.inf], 0.0), ([-np.inf, np.nan], 0.0)], ids=str)
def test_b3_a_range_is_that_of_the_finite_values(values: list[float], span: float, dtype: str) -> None:
    for count in (1, 1000):  # short arrays are held raw; long ones are coded, specials in runs
        x = np.repeat(np.array(values, dtype), count)
        trip = casekit.check(x, 1e-2, "rel", coded=count > 1)["fast"]
        if count > 1:
            assert trip.result.eb == pytest.approx(1e-2 * span, rel=1e-15)
            assert Fraction(trip.result.eb) <= Fraction(1e-2) * Fraction(span)


@pytest.mark.parametrize(("dtype", "largest"), [("float32", 3e38), ("float64", 1.7e308)])
@pytest.mark.parametrize("eb", [1e-1, 1e-3, 0.9])
def test_b3_a_range_that_overflows(dtype: str, largest: float, eb: float) -> None:
    pair = np.array([-largest, largest], dtype)
    casekit.check(pair, eb, "rel", PRESETS, coded=False)
    x = (
        np.interp(np.arange(40_000), [0, 20_000, 39_999], np.array([-0.5, 0.5, -0.5])).astype(dtype)
        * np.array(largest, dtype)
        * 2
    )
    assert np.isfinite(x).all()
    assert x.max() == x.dtype.type(largest)
    # a step above the type's largest number codes nothing: the values are kept, which is within any bound
    casekit.check(x, eb, "rel", PRESETS, coded=None if eb > 0.5 else True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 31, 32, 1000, 50_000])
def test_b3_constants_are_exact_under_a_relative_bound(n: int, dtype: str) -> None:
    x = np.full(n, 3.5, dtype)
    for preset, trip in casekit.check(x, 1e-3, "rel", PRESETS, coded=None).items():
        assert np.array_equal(casekit.bits(trip.restored), casekit.bits(x)), preset
        assert n < 1000 or (not trip.result.raw and trip.ratio > 5)


@pytest.mark.parametrize("bad", ["0", "-1", "nan", "inf", "1e-400", "-0.0", "1e400"])
def test_b3_bounds_that_are_none_are_refused_by_value(bad: str, tmp_path: object) -> None:
    x, number = sine(100), float(bad)
    for mode in ("abs", "rel"):
        with pytest.raises(
            bq.BriquetteError, match=f"error bound {re.escape(repr(number))} must be finite and greater than zero"
        ):
            bq.compress(x, number, mode)
    with pytest.raises(bq.BriquetteError, match=re.escape(repr(number))):
        bq.Pipeline.from_toml(f"{bq.Pipeline.from_preset('fast').to_toml()}\n[bound]\neb = {number!r}\n")
    np.save(f"{tmp_path}/x.npy", x)
    done = CliRunner().invoke(cli, ["compress", f"{tmp_path}/x.npy", "--eb", bad])
    assert done.exit_code == 2
    assert f"error bound '{bad}'" in done.stderr


@pytest.mark.parametrize("bad", [None, "tight", 1j, [1e-3]])
def test_b3_bounds_that_are_no_numbers(bad: object) -> None:
    with pytest.raises(bq.BriquetteError, match="needs an error bound" if bad is None else re.escape(repr(bad))):
        bq.compress(sine(100), bad)  # type: ignore[arg-type]


def patterned(dtype: str) -> np.ndarray:
    """-0.0 among zeros, denormals of both signs, and two NaN payloads, between ordinary values."""
    info = np.finfo(dtype)
    tiny = float(info.smallest_subnormal)
    some = [0.0, -0.0, tiny, -tiny, 7 * tiny, float(info.tiny), -float(info.tiny) / 2, 1.0, -0.0, -1.0]
    x = np.tile(np.array(some, dtype), 2000)
    payloads = [0x7FF8000000000001, 0x7FF0000000000001] if dtype == "float64" else [0x7FC12345, 0x7F800001]
    x.view(f"u{x.itemsize}")[[5, 777, 8191, 8192]] = [
        payloads[0],
        payloads[1],
        payloads[0],
        payloads[0] | 1 << 8 * x.itemsize - 1,
    ]
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_b5_bits_that_are_kept_and_zeros_that_are_coded(dtype: str) -> None:
    x = patterned(dtype)
    for trip in casekit.check(x, 1e-2, "abs", PRESETS).values():
        finite = np.isfinite(x)
        assert np.array_equal(casekit.bits(trip.restored)[~finite], casekit.bits(x)[~finite])
        zeros = trip.restored[x == 0]
        assert (zeros == 0).all()
        assert not np.signbit(zeros).any(), "docs/behaviour.md says that a coded -0.0 comes back as 0.0"
        assert trip.result.outliers == (~finite).sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_b5_the_smallest_bound_of_all_keeps_the_bits_of_what_is_larger(dtype: str) -> None:
    x = patterned(dtype)
    for trip in casekit.check(x, 5e-324, "abs", PRESETS, coded=None).values():
        larger = ~(np.abs(x) <= 5e-324)
        assert np.array_equal(casekit.bits(trip.restored)[larger], casekit.bits(x)[larger])


@pytest.mark.parametrize("fill", [9.96921e36, 1e20, -999.99])
def test_b6_sentinels_without_a_fill_value(fill: float) -> None:
    field = sine(100_000)
    holes = np.random.default_rng(6).random(field.size) < 0.01
    x = np.where(holes, np.float32(fill), field)
    absolute = casekit.check(x, 1e-2, "abs", PRESETS)
    for trip in absolute.values():
        if abs(fill) > 2.0**31 * 2e-2:  # has no code, so that it is kept aside
            assert trip.result.outliers == holes.sum()
            assert np.array_equal(trip.restored[holes], x[holes])
        else:
            assert trip.result.outliers == 0
    assert absolute["fast"].ratio > 4  # a sentinel costs the segments it stands in, not the field
    relative = casekit.check(x, 1e-3, "rel", PRESETS)["fast"]
    # docs/behaviour.md: the sentinel is a finite value like another, so that the range is its distance to the data
    assert relative.result.eb == pytest.approx(1e-3 * float(casekit.exact_range(x)), rel=1e-15)
    assert relative.result.eb > 0.5 * 1e-3 * abs(fill)
    assert casekit.check(field, 1e-3, "rel")["fast"].result.eb == pytest.approx(2e-3, rel=1e-4)

"""Quantizers with outliers in place: the bound exactly, specials bit for bit, one stream of codes on every target."""

from __future__ import annotations

import os
import secrets
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import bounds
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import PortType, numpy_dtype
from briquette.record import Bound, RunRecord
from briquette.selection import choose_target
from briquette_quantize.inplace import InPlaceLogQuantizer, InPlaceQuantizer, _bits_toward_zero, _Places

WAYS = (("numpy", "auto"), ("host", "auto"))
FLOATS = ("float16", "bfloat16", "float32", "float64")
NAMES = {"abs": "in-place-quantizer", "rel": "in-place-quantizer", "pwrel": "in-place-log-quantizer"}


@pytest.fixture(scope="module", autouse=True)
def _needs_a_compiler() -> None:
    target = choose_target("host")
    assert target is not None
    reason = target.unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int(os.environ.get("BRIQUETTE_TEST_SEED") or secrets.randbits(32))
    print(f"BRIQUETTE_TEST_SEED={seed}")
    return np.random.default_rng(seed)


def types_of(name: str) -> np.dtype[Any]:
    pytest.importorskip("ml_dtypes") if name == "bfloat16" else None
    return numpy_dtype(name)


def field(rng: np.random.Generator, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A walk with zeros of both signs, NaN of random payloads, infinities, subnormals and the largest values."""
    x = np.cumsum(rng.normal(0.0, 0.02, n)).astype(dtype)
    kind = np.dtype(f"u{dtype.itemsize}")
    x[rng.integers(0, n, n // 50 + 1)] = 0.0
    x[rng.integers(0, n, n // 90 + 1)] = -0.0
    at = rng.integers(0, n, n // 20 + 1)
    x.view(kind)[at] = np.frombuffer(rng.bytes(at.size * dtype.itemsize), kind)
    inf = int(np.array([np.inf]).astype(dtype).view(kind)[0])
    sign = 1 << 8 * dtype.itemsize - 1
    for pattern in (inf, inf + sign, inf + 1, inf + sign + 3, inf - 1, inf + sign - 1, 1, sign + 1, 2, sign + 9):
        x.view(kind)[rng.integers(0, n, n // 300 + 1)] = kind.type(pattern)
    return x


def run(x: NDArray[Any], bound: Bound, pipe: bq.Pipeline | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return codes and reconstruction, the same on every target."""
    name = NAMES[bound.mode]
    pipe = pipe or bq.chain(name)
    made = []
    for target, fusion in WAYS:
        exe = pipe.executable(x.dtype.name, target, fusion)
        assert exe.plan.forward.launches == exe.plan.inverse.launches == (target == "host"), exe.plan.explain()
        record, values = exe.forward(x, bound, 1)
        ((_, codes),) = values.items()
        out = np.full_like(x, 77)
        exe.inverse(dict(values), RunRecord(record.state), x.size, 1, out)
        made.append((record.state, np.asarray(codes), out))
    assert made[0][0] == made[1][0]
    for a, b in zip(made[0][1:], made[1][1:], strict=True):
        assert a.tobytes() == b.tobytes()
    return made[0][1], made[0][2]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["abs", "rel"])
def test_the_bound_and_specials(mode: Any, dtype: str, rng: np.random.Generator) -> None:
    kind = types_of(dtype)
    for n in (1, 2, 255, 256, 257, 5000):
        x = field(rng, n, kind)
        for eb in (1e-2, 1e-4, 1e-9, 3e-39, 7e-46, 5e-324, 1e30, 1e300):
            given = Bound(eb, mode)
            _, back = run(x, given)
            report = bounds.compare(x, back, bounds.resolve(given, x))
            assert report.ok, (n, eb, report)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_point_wise_bound_and_specials(dtype: str, rng: np.random.Generator) -> None:
    for n in (1, 255, 256, 257, 5000):
        whole = field(rng, n, np.dtype(dtype))
        with np.errstate(invalid="ignore"):
            moderate = np.where(np.abs(whole) > 1e30, whole.dtype.type(1), whole)
        for x in (whole, moderate, np.abs(whole), -np.abs(whole), np.abs(moderate)):
            for eb in (0.9, 1e-2, 1e-3, 1e-9):
                _, back = run(x, Bound(eb, "pwrel"))
                report = bounds.compare(x, back, eb, point_wise=True)
                assert report.ok, (n, eb, report)
                zeros = x == 0
                assert x[zeros].tobytes() == back[zeros].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_point_wise_codes_have_places_unless_every_magnitude_is_taken(dtype: str) -> None:
    x = np.linspace(1, 2, 1000).astype(dtype)
    assert np.abs(run(x, Bound(1e-2, "pwrel"))[0]).max() < 100
    x[3] = np.finfo(dtype).max  # of one sign: the other one's patterns are free
    assert np.unique(run(x, Bound(1e-2, "pwrel"))[0]).size < 100
    x[4] = -1
    codes, back = run(x, Bound(1e-2, "pwrel"))
    assert back.tobytes() == x.tobytes()
    assert codes.tobytes() == x.tobytes() or np.unique(codes).size == np.unique(x).size


def test_a_code_is_the_nearest_multiple_and_an_outlier_its_own_bits() -> None:
    x = np.array([0.0, -0.0, 0.02, -0.04, 0.0099, np.nan, -np.inf, 1e38], np.float32)
    codes, _ = run(x, Bound(0.01))
    assert codes[:5].tolist() == [0, 0, 1, -2, 0]
    top = int(np.array([0.01], np.float32).view(np.uint32)[0]) - (float(np.float32(0.01)) > 0.01)
    assert (codes[5:].view(np.uint32) + np.uint32(top // 2)).tolist() == x[5:].view(np.uint32).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_are_rounded_toward_zero_exactly(dtype: str, rng: np.random.Generator) -> None:
    kind = types_of(dtype)
    for value in (0.0, 5e-324, 1e-45, 2e-45, 1.0, 0.1, 1e30, 1.7e308, *np.exp(rng.uniform(-90, 90, 50)).tolist()):
        bits = _bits_toward_zero(value, kind)
        held = np.array([bits, bits + 1], f"u{kind.itemsize}").view(kind).astype(np.float64)
        assert Fraction(float(held[0])) <= Fraction(value)
        assert not np.isfinite(held[1]) or Fraction(float(held[1])) > Fraction(value)


def test_places_are_within_their_ends() -> None:
    for first in range(6):
        for last in range(first - 1, 20):
            places = _Places.between(8, first, last)
            taken = range(places.offset - places.half, places.offset - places.half + places.count)
            assert all(first <= place <= last for place in taken)
            assert places.count in (0, last - first, last - first + 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_words_that_nothing_writes_decode_alike(dtype: str, rng: np.random.Generator) -> None:
    kind = types_of(dtype)
    pipe = bq.chain("in-place-quantizer")
    words = np.frombuffer(rng.bytes(4096 * kind.itemsize), f"i{kind.itemsize}").copy()
    words[:2000] >>= 8 * kind.itemsize // 2
    for eb, step in ((1e-3, 2e-3), (0.0, 0.0), (1e300, 1e300), (5e-324, 1.0)):
        made = set()
        for target, fusion in WAYS:
            out = np.empty(4096, kind)
            state = {"in-place-quantizer": {"eb": eb, "quant_step": step, "inverse_step": 1.0}}
            exe = pipe.executable(dtype, target, fusion)
            exe.inverse({("in-place-quantizer", "codes"): words}, RunRecord(state), 4096, 1, out)
            made.add(out.tobytes())
        assert len(made) == 1


def test_state_that_nothing_resolves_is_refused() -> None:
    good = {"eb": 0.1, "quant_step": 0.2, "inverse_step": 5.0}
    types = {"in": PortType("float32"), "codes": PortType("int32")}
    for key in good:
        with pytest.raises(ArchiveError, match=key):
            InPlaceQuantizer().fused_params({**good, key: -1.0}, types)
    log = {**good, "center": 0.0, "low": 0, "span": 0, "base": 0, "code_offset": 5, "code_places": 3}
    assert InPlaceLogQuantizer().fused_params(log, types)["half"] == 1
    for key in ("code_offset", "code_places"):
        for bad in (-1, 1 << 32, 1.0, True, None):
            with pytest.raises(ArchiveError, match=key):
                InPlaceLogQuantizer().fused_params({**log, key: bad}, types)


@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_heads_of_warp_chains(mode: Any, dtype: str, rng: np.random.Generator) -> None:
    pipe = bq.chain(NAMES[mode], "lorenzo-1d", "zigzag", "plain-rate")
    x = field(rng, 20_000, np.dtype(dtype))
    plan = pipe.plan(x, target="host")
    assert [step.harness for step in plan.forward.steps] == ["warp-register"]
    assert plan.forward.launches == plan.inverse.launches == 1
    blobs = {bytes(pipe.compress(x, 1e-3, mode, target=t, fusion=f)) for t, f in (*WAYS, ("host", "off"))}
    assert len(blobs) == 1
    assert bq.verify(blobs.pop(), x).ok


def test_what_is_refused() -> None:
    with pytest.raises(PipelineError, match="integers go to stage integer-quantizer"):
        InPlaceQuantizer().output_types({"in": PortType("int32")})
    with pytest.raises(PipelineError, match="takes float32 or float64"):
        InPlaceLogQuantizer().output_types({"in": PortType("float16")})

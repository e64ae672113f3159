"""The logarithmic quantizer: its bound in exact arithmetic for every kind of value, the order of its codes, its declarations."""

from __future__ import annotations

import math
import os
import pickle
import secrets
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from briquette import outliers
from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import PortType
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope
from briquette_quantize.log import LogQuantizer, step_for
from briquette_quantize.logarithm import exp2, log2

CHUNK = 8192
FLOATS = ("float32", "float64")


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int(os.environ.get("BRIQUETTE_TEST_SEED") or secrets.randbits(32))
    print(f"BRIQUETTE_TEST_SEED={seed}")
    return np.random.default_rng(seed)


class Run:
    """One compression by the quantizer alone, and its reconstruction."""

    def __init__(self, values: np.ndarray, eb: float) -> None:
        self.stage = LogQuantizer()
        self.values, self.eb = values, eb
        given = {"in": PortType(values.dtype.name)}
        types = {**given, **self.stage.output_types(given)}
        self.state = self.stage.prime_fused_forward_state(PrimeContext(values, types, Bound(eb, "pwrel"), values.size))
        self.scope = Scope(self.state, types, values.size, CHUNK)
        self.outputs = self.stage.forward({"in": values}, self.scope)
        self.codes: Any = self.outputs["codes"]
        self.back: Any = self.stage.inverse(self.outputs, self.scope)["in"]
        self.where, self.aside = outliers.decode(self.outputs["outliers"], values.size, CHUNK, values.dtype)  # type: ignore[arg-type]

    def check(self) -> Run:
        """Assert what the guarantee says of every value, in fractions."""
        x, y = self.values, self.back
        assert (y.dtype, y.shape, self.codes.dtype) == (x.dtype, x.shape, self.scope.types["codes"].numpy)
        exact = ~np.isfinite(x) | (x == 0)
        assert x[exact].tobytes() == y[exact].tobytes()
        assert np.isin(np.flatnonzero(~np.isfinite(x)), self.where).all()
        assert y[self.where].tobytes() == x[self.where].tobytes() == self.aside.tobytes()
        eb = Fraction(self.eb)
        for a, b in zip(x[~exact].tolist(), y[~exact].tolist(), strict=True):
            assert abs(Fraction(a) - Fraction(b)) <= eb * abs(Fraction(a)), (a, b, self.eb)
        return self


def fields(rng: np.random.Generator, dtype: str, n: int = 1500) -> dict[str, np.ndarray]:
    """Return random values of every kind, and smooth ones of one sign, of both, and with zeros."""
    bits, info = np.dtype(dtype.replace("float", "uint")), np.finfo(dtype)
    top = int(np.array(info.smallest_normal, dtype).view(bits))
    sign = rng.choice(np.array([-1.0, 1.0]), n)
    smooth = np.cumsum(rng.standard_normal(n)) / 10
    with np.errstate(over="ignore", invalid="ignore"):
        made = {
            "any bits": np.frombuffer(rng.bytes(n * bits.itemsize), bits).view(dtype),
            "subnormal": rng.integers(0, top, n).astype(bits).view(dtype) * sign.astype(dtype),
            "fewest bits": rng.integers(0, 40, n).astype(bits).view(dtype),
            "around the smallest normal": rng.integers(top - 300, top + 300, n).astype(bits).view(dtype),
            "huge": (info.max * rng.uniform(0.1, 1, n) * sign).astype(dtype),
            "wide": (sign * 10.0 ** rng.uniform(-30, 30, n)).astype(dtype),
            "positive": np.exp(smooth).astype(dtype),
            "negative": -np.exp(smooth).astype(dtype),
            "both signs": smooth.astype(dtype),
            "powers of two": (sign * 2.0 ** rng.integers(-120, 120, n)).astype(dtype),
            "constant": np.full(n, rng.standard_normal(), dtype),
        }
    made["largest and smallest"] = np.tile(np.array([info.max, info.tiny, -info.smallest_subnormal, -info.max], dtype), 8)
    zeros = made["both signs"].copy()
    zeros[100:300], zeros[400:500], zeros[::97] = 0.0, -0.0, np.nan
    zeros.view(bits)[3::97] = np.array(np.nan, dtype).view(bits) + bits.type(5)
    zeros[7::97], zeros[9::97] = np.inf, -np.inf
    return {**made, "zeros and specials": zeros, "nothing but zeros": np.array([0.0, -0.0] * 50, dtype)}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("eb", [0.999999, 0.5, 0.1, 1e-2, 1e-3, 1e-6, 6e-8, 1e-12, 1e-17, 5e-324])
def test_every_value_is_within_the_bound_or_kept(dtype: str, eb: float, rng: np.random.Generator) -> None:
    for values in fields(rng, dtype).values():
        Run(values, eb).check()


@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_that_the_type_can_show_keep_hardly_anything_aside(dtype: str, rng: np.random.Generator) -> None:
    bounds = (0.9, 0.1, 1e-3, 1e-5) if dtype == "float32" else (0.9, 0.1, 1e-3, 1e-6, 1e-10)
    for name in ("wide", "positive", "negative", "both signs", "powers of two", "constant", "subnormal"):
        values = fields(rng, dtype)[name]
        for eb in bounds:
            assert Run(values, eb).where.size <= 0.02 * values.size, (name, eb)


@pytest.mark.parametrize("dtype", FLOATS)
def test_values_at_the_ends_of_the_intervals(dtype: str) -> None:
    """Whole neighbourhoods of the places where a code ends: where a comparison that rounds would let one through."""
    bits = np.dtype(dtype.replace("float", "uint"))
    for eb in (0.3, 1e-2, 1e-4):
        step, _, center = step_for(eb, np.dtype(dtype))
        ends = 2.0 ** ((np.arange(-20, 21) + 0.5) * step)
        ends = np.concatenate([ends, 2.0 ** (np.arange(-20, 21) * step + center) / (1 - eb)]).astype(dtype)
        near = ends.view(bits)[:, None] + np.arange(-20, 21, dtype=np.int64).astype(bits)
        Run(near.reshape(-1).view(dtype), eb).check()


@pytest.mark.parametrize("dtype", FLOATS)
def test_codes_rise_with_the_values_and_are_few(dtype: str, rng: np.random.Generator) -> None:
    values = fields(rng, dtype)
    for name in ("positive", "negative", "both signs", "wide"):
        x = np.sort(values[name])
        run = Run(x, 1e-3)
        most = np.abs(x).max()
        order = run.codes if name in ("positive", "negative") else run.codes[(np.abs(x) > most * 2.0**-11) | (x == 0)]
        assert (np.diff(order) >= 0).all(), name
        octaves = math.log2(float(most)) - math.log2(float(np.abs(x).min()))
        if name in ("positive", "negative"):  # centred
            assert np.abs(run.codes).max() <= octaves / run.state["quant_step"] / 2 + 2  # type: ignore[operator]
    zeros = Run(np.array([1.0, 0.0, -0.0, -1.0], dtype), 1e-3)
    assert zeros.codes.tolist()[1:3] == [0, -1]
    assert not zeros.where.size


def test_the_bytes_of_version_one() -> None:
    values = np.array([1.0, 1.5, -2.0, 0.0, -0.0, 1e-30, np.nan, np.inf, 3e38, 1e-45])
    single, double = Run(values.astype(np.float32), 1e-2), Run(values, 1e-2)
    # steps of log2(1.01 / 0.99) * (1 - 2**-10) octaves; 3e38 is at 4434 of them, ranks 1 to 418 are 4017 to 4434, 1.0 is at 0
    expected = [4435, 4415, -4401, 0, -1, 7892, 4435, 4435, 418]
    assert single.codes.tolist() == [*expected, 9604]  # the smallest subnormal, 1.4e-45
    assert double.codes.tolist() == [*expected, 9621]


def test_large_bounds_use_the_widest_intervals(rng: np.random.Generator) -> None:
    """Intervals reach from 1 - eb to 1 + eb of what they decode to, not only as far as the nearer end allows."""
    for eb in (0.9, 0.5, 0.1):
        step, inverse, center = step_for(eb, np.dtype(np.float64))
        assert step == pytest.approx(math.log2((1 + eb) / (1 - eb)), rel=2e-3)
        assert inverse == pytest.approx(1 / step)
        assert 2.0 ** (center + step / 2) == pytest.approx(1 + eb, rel=5e-3)
        y = Run(2.0 ** rng.uniform(-50, 50, 20_000), eb)
        errors = y.back / y.values - 1
        assert errors.max() > 0.95 * eb
        assert errors.min() < -0.95 * eb


@pytest.mark.parametrize("size", [4, 8])
def test_steps_join_where_the_series_ends(size: int) -> None:
    dtype = np.dtype(f"f{size}")
    for eb in (2.0**-7, 2.0**-8, 1e-5):
        below, above = (step_for(eb * (1 + side), dtype) for side in (-1e-7, 1e-7))
        assert below[0] == pytest.approx(above[0], rel=1e-6)
        assert below[2] == pytest.approx(above[2], rel=1e-6)
        assert below[0] == pytest.approx(math.log2((1 + eb) / (1 - eb)), rel=2e-2)
    assert step_for(2.0**-24 if size == 4 else 2.0**-53, dtype) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("dtype", "log_error", "exp_error"), [("float32", 2e-10, 6.1e-8), ("float64", 2e-14, 5e-16)])
def test_logarithm_and_power(dtype: str, log_error: float, exp_error: float, rng: np.random.Generator) -> None:
    for values in fields(rng, dtype).values():
        sizes = np.abs(values[np.isfinite(values) & (values != 0)])
        if sizes.size:
            exact = [math.log2(m) + e for m, e in map(math.frexp, sizes.tolist())]
            np.testing.assert_allclose(log2(sizes), exact, rtol=3e-16, atol=log_error)
    powers = rng.uniform(-125.9, 127.9, 4000)
    np.testing.assert_allclose(exp2(powers, np.dtype(dtype)), np.exp2(powers), rtol=exp_error)
    whole = np.arange(-1200.0, 1201.0)
    with np.errstate(all="ignore"):
        assert exp2(whole, np.dtype(dtype)).tolist() == np.exp2(whole).astype(dtype).tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_empty_and_one_element(dtype: str) -> None:
    assert Run(np.empty(0, dtype), 1e-3).check().back.size == 0
    for value in (2.5, -1e-30, 0.0, -0.0, np.nan, np.inf):
        assert Run(np.array([value], dtype), 1e-3).check().back.size == 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_impossible_codes_decode_without_a_fault(dtype: str, rng: np.random.Generator) -> None:
    run = Run(np.array([1.0, -5.0, 0.0], dtype), 1e-3)
    code = run.codes.dtype
    codes = np.concatenate([np.frombuffer(rng.bytes(800 * code.itemsize), code), [np.iinfo(code).min, np.iinfo(code).max]])
    scope = Scope(run.state, run.scope.types, codes.size, CHUNK)
    kept = {"outliers": outliers.none_kept(codes.size, CHUNK)}
    assert run.stage.inverse({"codes": codes.astype(code), **kept}, scope)["in"].shape == codes.shape  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quant_step", math.nan),
        ("center", math.inf),
        ("eb", "1"),
        ("inverse_step", None),
        ("low", 2**29),
        ("span", True),
        ("base", -(2**40)),
        ("fill_code", 2**31),
        ("fill_code", 0.5),
    ],
)
def test_impossible_state_is_refused(name: str, value: Any) -> None:
    run = Run(np.array([1.0, 2.0], np.float32), 1e-3)
    with pytest.raises(ArchiveError, match=name):
        run.stage.inverse(run.outputs, Scope({**run.state, name: value}, run.scope.types, 2, CHUNK))
    with pytest.raises(ArchiveError, match=name):
        run.stage.inverse(run.outputs, Scope({k: v for k, v in run.state.items() if k != name}, run.scope.types, 2, CHUNK))


@pytest.mark.parametrize("given", [PortType("int32"), PortType("float32", "chunked")])
def test_inputs_it_cannot_take(given: PortType) -> None:
    with pytest.raises(PipelineError, match="takes float32 or float64 values"):
        LogQuantizer().output_types({"in": given})


def test_declaration_and_value_semantics() -> None:
    stage = LogQuantizer()
    op = stage.fused_op()
    assert (stage.fusion_spec().access, stage.fusion_spec().span) == (FusionAccess.ELEMENTWISE, 1)
    assert op.qualified == "::briquette_quantize::LogQuantizer"
    assert (op.geometry, stage.fused_aux_outputs(), stage.bound_modes) == ({"head": 1}, ("outliers",), ("pwrel",))
    assert pickle.loads(pickle.dumps(stage)) == stage == LogQuantizer.from_parameters({})
    types = {"in": PortType("float32"), **stage.output_types({"in": PortType("float32")})}
    with pytest.raises(PipelineError, match="eb="):
        stage.prime_fused_forward_state(PrimeContext(np.ones(3, np.float32), types, None, 3))
    assert stage.max_chunk_words("outliers", types, 8192) == 1 + 256 + 8192
    run = Run(np.array([1.0, 2.0]), 1e-3)
    assert op.params is not None
    assert len(op.params.pack(stage.fused_params(run.state, run.scope.types))) == op.params.size == 72

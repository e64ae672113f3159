"""The linear quantizer: its arithmetic against a scalar reference, its bound in exact arithmetic, its declarations."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette import outliers
from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope
from briquette_quantize.linear import LinearQuantizer

CHUNK = 8192


class Run:
    """One compression by the quantizer alone, and its reconstruction."""

    def __init__(
        self, values: np.ndarray, eb: float, mode: str = "abs", stage: LinearQuantizer | None = None, chunk: int = CHUNK
    ) -> None:
        self.stage = stage or LinearQuantizer()
        self.values = values
        given = {"in": PortType(values.dtype.name)}
        types = {**given, **self.stage.output_types(given)}
        self.state = self.stage.prime_fused_forward_state(PrimeContext(values, types, Bound(eb, mode), values.size))
        self.scope = Scope(self.state, types, values.size, chunk)
        self.outputs = self.stage.forward({"in": values}, self.scope)
        self.codes: Any = self.outputs["codes"]
        self.back: Any = self.stage.inverse(self.outputs, self.scope)["in"]
        self.where, self.aside = outliers.decode(self.outputs["outliers"], values.size, chunk, values.dtype)

    @property
    def eb(self) -> float:
        eb = self.state["eb"]
        assert isinstance(eb, float)
        return eb

    def check(self) -> Run:
        """Assert what the guarantee says of every value, the largest errors in exact arithmetic."""
        x, y = self.values, self.back
        assert y.dtype == x.dtype
        assert y.shape == x.shape
        assert y.flags.writeable
        assert self.codes.dtype == self.scope.types["codes"].numpy
        special = ~np.isfinite(x)
        assert x[special].tobytes() == y[special].tobytes()
        assert np.isin(np.flatnonzero(special), self.where).all()
        assert y[self.where].tobytes() == x[self.where].tobytes() == self.aside.tobytes()
        fine = np.flatnonzero(~special)
        assert np.isfinite(y[fine]).all()
        wide = np.abs(x[fine].astype(np.longdouble) - y[fine].astype(np.longdouble))
        for i in fine[np.argsort(wide)[-40:]].tolist():
            assert abs(Fraction(float(x[i])) - Fraction(float(y[i]))) <= Fraction(self.eb), (i, x[i], y[i])
        return self


# -- arithmetic --------------------------------------------------------------------------------------------


def scalar_reference(x: Any, state: Mapping[str, Any], code: np.dtype[Any]) -> tuple[int, bool]:
    """Quantize one value step by step; return its code and whether it is kept aside."""
    eb, step, inverse = state["eb"], np.float64(state["quant_step"]), np.float64(state["inverse_step"])
    single = x.dtype == np.float32
    limit = Fraction(int(np.iinfo(code).max))
    top: Any = x.dtype.type(np.iinfo(code).max)
    while Fraction(float(top)) > limit:
        top = np.nextafter(top, x.dtype.type(0))
    bound = x.dtype.type(min(eb, float(np.finfo(x.dtype).max)))
    while float(bound) > eb:
        bound = np.nextafter(bound, x.dtype.type(0))
    if single:
        q: Any = np.rint(x * np.float32(inverse))
        if not abs(q) < 65536:
            q = np.rint(np.float64(x) * inverse)
    else:
        q = np.rint(x * inverse)
    fits = bool(abs(q) <= np.float64(top))
    c = int(q) if fits else state["fill_code"]
    y = np.float32(c) * np.float32(step) if single and abs(c) < 65536 else x.dtype.type(np.float64(c) * step)
    return c, not fits or not bool(abs(x - y) <= bound)


def awkward(dtype: str, scale: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    special = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        info.max,
        info.min,
        info.tiny,
        info.smallest_subnormal,
        -info.smallest_subnormal,
    ]
    near = [
        s * e
        for s in (1, -1)
        for e in (0.5, 0.9921875, 1.0, 1.5, 65534.5, 65535.5, 65536.0, 65537.0, 2.0**31, 2.0**31 - 129, 2.0**63)
    ]
    values = np.concatenate(
        [special, np.array(near) * 1.984375 * scale, rng.standard_normal(60) * scale * 10.0 ** rng.integers(-3, 7, 60)]
    )
    rng.shuffle(values)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@pytest.mark.parametrize("code_type", ["auto", "int16", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("eb", [1e-3, 0.5, 1.0, 2.0**-44, 1e-40, 1e-46, 1e30, 5e-324, 1e300])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_matches_the_scalar_reference(dtype: str, eb: float, code_type: str) -> None:
    for seed in range(3):
        run = Run(awkward(dtype, eb if eb > 1e-44 else 1e-40, seed), eb, stage=LinearQuantizer(code_type)).check()
        expected = [scalar_reference(x, run.state, run.codes.dtype) for x in run.values]
        assert run.codes.tolist() == [c for c, _ in expected]
        assert run.where.tolist() == [i for i, (_, aside) in enumerate(expected) if aside]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fast_path_gives_what_the_general_one_gives(dtype: str) -> None:
    values = np.random.default_rng(1).standard_normal(5000).astype(dtype)
    plain, mixed = Run(values, 1e-3), Run(np.append(values, [np.nan, 1e9]).astype(dtype), 1e-3)
    np.testing.assert_array_equal(plain.codes, mixed.codes[:5000])
    np.testing.assert_array_equal(plain.where, mixed.where[:-1] if dtype == "float64" else mixed.where[mixed.where < 5000])
    assert plain.back.tobytes() == mixed.back[:5000].tobytes()


@pytest.mark.parametrize(("dtype", "offset", "eb"), [("float32", 1e6, 0.1), ("float64", 1e12, 2e-3)])
def test_a_fit_stays_in_the_codes_though_its_value_is_kept_aside(dtype: str, offset: float, eb: float) -> None:
    values = (offset + np.sin(np.arange(3000) / 300)).astype(dtype)
    run = Run(values, eb).check()
    assert 0 < run.where.size < 600
    assert run.codes[run.where].tolist() == np.rint(run.aside.astype(np.float64) * run.state["inverse_step"]).tolist()


def test_fill_code_is_the_first_finite_values() -> None:
    run = Run(np.array([np.nan, np.inf, 3.0, 9.0, np.nan], np.float32), 0.5)
    assert run.state["fill_code"] == round(3 / 0.9921875)
    assert run.codes.tolist() == [3, 3, 3, 9, 3]
    assert Run(np.array([np.nan, 1e30, 1.0], np.float32), 0.5).state["fill_code"] == 0
    assert Run(np.full(1000, np.nan), 0.5).state["fill_code"] == 0
    late = np.full(300_000, np.nan, np.float32)
    late[-1] = 7.0
    assert Run(late, 0.5).state["fill_code"] == 7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pieces_join_to_the_whole(dtype: str) -> None:
    values = awkward(dtype, 1.0, 4).repeat(7)
    whole = Run(values, 1.0, chunk=64)
    parts = []
    for a in range(0, values.size, 128):
        piece = values[a : a + 128]
        parts.append(whole.stage.forward({"in": piece}, Scope(whole.state, whole.scope.types, piece.size, 64)))
    np.testing.assert_array_equal(np.concatenate([p["codes"] for p in parts]), whole.codes)  # type: ignore[arg-type]
    joined = Chunked.concatenate([p["outliers"] for p in parts])  # type: ignore[misc]
    assert joined.words.tobytes() == whole.outputs["outliers"].words.tobytes()  # type: ignore[union-attr]
    assert joined.sizes.tolist() == whole.outputs["outliers"].sizes.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["abs", "rel"])
def test_empty_and_one_element(dtype: str, mode: str) -> None:
    assert Run(np.empty(0, dtype), 1e-3, mode).check().back.size == 0
    assert Run(np.array([2.5], dtype), 1e-3, mode).check().back.size == 1


# -- the bound ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "first", "eb"), [("float64", 5_000_000, 1e-5), ("float32", 0, 1e-2), ("float32", 0, 1e-3)])
def test_a1_values_midway_between_codes(dtype: str, first: int, eb: float) -> None:
    k = np.arange(first, first + 400_000, dtype=np.float64)
    Run(((2 * k + 1) * eb).astype(dtype), eb).check()


def test_a4_bounds_below_the_spacing_of_the_values() -> None:
    Run(np.exp(np.random.default_rng(0).normal(0, 2.5, 64**3)).astype(np.float32), 2.0**-44).check()
    smooth = np.sin(np.linspace(0, 40, 20_000)) + 0.3 * np.cos(np.linspace(0, 7, 20_000))
    bounds = [1e-15 * 2.0**-k for k in range(0, 60, 4)] + [1e-40, 1e-150, 1e-300]
    errors = [float(np.abs(Run(smooth, eb).check().back - smooth).max()) for eb in bounds]
    assert errors[-1] == 0.0


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("span", [32, 64, 256, 1024, 4096])
def test_b2_one_special_value_leaves_its_neighbours_alone(span: int, dtype: str, special: float) -> None:
    smooth = np.sin(np.arange(3 * span) / 50).astype(dtype)
    clean = Run(smooth, 1e-3)
    for at in (0, span - 1, span, 2 * span - 1, 3 * span - 1):
        values = smooth.copy()
        values[at] = special
        run = Run(values, 1e-3, chunk=span).check()
        assert run.where.tolist() == [at]
        assert np.delete(run.back, at).tobytes() == np.delete(clean.back, at).tobytes()


def test_b2_a_chunk_of_nan_is_one_run() -> None:
    values = np.sin(np.arange(3 * CHUNK) / 50).astype(np.float32)
    values[CHUNK : 2 * CHUNK] = np.nan
    run = Run(values, 1e-3).check()
    assert run.outputs["outliers"].sizes.tolist() == [0, 6, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_b3_range_is_over_finite_values(dtype: str) -> None:
    assert Run(np.array([1, 2, np.nan], dtype), 1e-3, "rel").check().state["range"] == 1.0
    one = Run(np.array([1, np.inf], dtype), 1e-3, "rel").check()
    assert (one.state["range"], one.eb, one.back.tolist()) == (0.0, 0.0, [1.0, math.inf])
    none = Run(np.array([np.nan, -np.inf], dtype), 1e-3, "rel").check()
    assert none.state["range"] == 0.0
    constant = Run(np.full(500, 3.5, dtype), 1e-3, "rel").check()
    assert constant.eb == 0.0
    assert (constant.back == 3.5).all()
    assert constant.outputs["outliers"].words.size == 6 + (dtype == "float64")  # type: ignore[union-attr]


@pytest.mark.parametrize("relative", [1e-3, 0.5, 1.0, 1e300])
def test_b3_ranges_that_overflow(relative: float) -> None:
    wide = np.random.default_rng(0).uniform(-1, 1, 1000)
    single = Run((wide * 3e38).astype(np.float32), relative, "rel").check()
    assert isinstance(single.state["range"], float)
    assert single.state["range"] > 3.4e38
    double = Run(wide * 1.7e308, relative, "rel").check()
    assert double.state["range"] == np.finfo(np.float64).max
    assert math.isfinite(double.eb)


def test_b5_zeros_denormals_and_payloads() -> None:
    single = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, -0.0], np.float32)
    assert (Run(single, 1e-3).check().back == 0.0).all()
    for eb in (1e-44, 1e-46, 1e-300):
        Run(single, eb).check()
    assert (Run(single, 1e-46).back == single).all()
    Run(np.array([0.0, -0.0, 5e-324, -1e-320, 2.2e-308]), 5e-324).check()
    bits = np.array([0x7FC12345, 0xFFC00001, 0x7F800001, 0x3F800000, 0x80000000], np.uint32)
    back = Run(bits.view(np.float32), 1e-3).check().back.view(np.uint32)
    assert back[:3].tolist() == bits[:3].tolist()
    payloads = np.array([0x7FF8000000000001, 0xFFF0000000000001], np.uint64)
    assert Run(payloads.view(np.float64), 1e-3).check().back.view(np.uint64).tolist() == payloads.tolist()


def test_f2_large_codes() -> None:
    rng = np.random.default_rng(0)
    field = rng.uniform(-36.8, 33.6, 32**3).astype(np.float32)
    for values, eb in ((field, 1e-5), (field, 1e-6), (rng.uniform(-1e6, 1e6, 32**3).astype(np.float32), 1e-4)):
        Run(values, eb).check()
    apart = np.where(np.arange(4096) % 2, np.float32(2e9), np.float32(-2e9))
    run = Run(apart, 0.5).check()
    assert np.abs(np.diff(run.codes.astype(np.int64))).max() > np.iinfo(np.int32).max


@pytest.mark.parametrize(("dtype", "offset", "relative"), [("float32", 1e6, 0.05), ("float64", 1e9, 1e-3)])
def test_range_relative_bounds_leave_room_for_narrowing(dtype: str, offset: float, relative: float) -> None:
    values = (offset + np.sin(np.arange(100_000) / 300)).astype(dtype)
    assert Run(values, relative, "rel").check().where.size == 0


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.floats(min_value=0.0, exclude_min=True, allow_infinity=False),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["abs", "rel"]),
    st.sampled_from(["auto", "int16", "int32", "int64"]),
)
def test_bound_holds_for_anything(values: list[float], eb: float, dtype: str, mode: str, code_type: str) -> None:
    Run(np.array(values, dtype), eb, mode, LinearQuantizer(code_type)).check()


# -- contract ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code_type", ["int8", "uint32", "", None, 32])
def test_bad_code_types_are_refused_by_value(code_type: object) -> None:
    with pytest.raises(PipelineError, match=f"code_type = {code_type!r}"):
        LinearQuantizer(code_type)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [PortType("int32"), PortType("float32", "chunked")])
def test_inputs_other_than_floats_are_refused(given: PortType) -> None:
    with pytest.raises(PipelineError, match="linear-quantizer"):
        LinearQuantizer().output_types({"in": given})


def test_output_types() -> None:
    assert LinearQuantizer().output_types({"in": PortType("float32")})["codes"] == PortType("int32")
    assert LinearQuantizer().output_types({"in": PortType("float64")})["codes"] == PortType("int64")
    types = LinearQuantizer("int16").output_types({"in": PortType("float64")})
    assert types == {"codes": PortType("int16"), "outliers": PortType("float64", "chunked")}
    assert LinearQuantizer().max_chunk_words("outliers", types, 8192) == 1 + 256 + 16384


def test_priming_needs_a_bound_and_the_data() -> None:
    types = {"in": PortType("float32"), "codes": PortType("int32")}
    with pytest.raises(PipelineError, match="eb="):
        LinearQuantizer().prime_fused_forward_state(PrimeContext(np.ones(3, np.float32), types, None, 3))
    with pytest.raises(PipelineError, match="input"):
        LinearQuantizer().prime_fused_forward_state(PrimeContext(None, types, Bound(1.0), 3))


def test_declaration_and_value_semantics() -> None:
    stage = LinearQuantizer("int32")
    op = stage.fused_op()
    assert (stage.fusion_spec().access, stage.fusion_spec().span) == (FusionAccess.ELEMENTWISE, 1)
    assert op.qualified == "::briquette_quantize::LinearQuantizer"
    assert op.geometry == {"head": 1, "resolves": 1}
    assert stage.fused_aux_outputs() == ("outliers",)
    assert pickle.loads(pickle.dumps(stage)) == stage == LinearQuantizer.from_parameters(stage.parameters())
    assert hash(stage) == hash(LinearQuantizer("int32"))
    assert stage != LinearQuantizer()


@pytest.mark.parametrize("eb", [1e-3, 5e-324, 1e-42, 1e300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("code_type", ["int16", "int32", "int64"])
def test_device_parameters(dtype: str, eb: float, code_type: str) -> None:
    stage = LinearQuantizer(code_type)
    run = Run(np.array([1.0, 2.0], dtype), eb, stage=stage)
    values = stage.fused_params(run.state, run.scope.types)
    op = stage.fused_op()
    assert op.params is not None
    assert len(op.params.pack(values)) == op.params.size == 56
    limits = {"int16": (32767.0, 32767.0), "int32": (2147483520.0, 2147483647.0), "int64": (2.0**63 - 2.0**39, 2.0**63 - 1024)}
    assert values["limit32"] == limits[code_type][0]
    assert values["limit"] == limits[code_type][dtype == "float64"]
    bound = values["bound32"]
    assert isinstance(bound, float)
    assert bound <= eb
    assert bound == np.finfo(np.float32).max or float(np.nextafter(np.float32(bound), np.float32(np.inf))) > eb
    assert values["bound"] == (eb if dtype == "float64" else bound)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quant_step", math.nan),
        ("quant_step", -1.0),
        ("eb", "1"),
        ("inverse_step", math.inf),
        ("inverse_step", None),
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


def test_impossible_codes_decode_without_a_fault() -> None:
    for dtype, code in (("float32", np.int32), ("float64", np.int64)):
        run = Run(np.ones(4, dtype), 1e300 if dtype == "float64" else 1e38)
        codes = np.array([np.iinfo(code).min, np.iinfo(code).max, 65536, -65536], code)
        assert run.stage.inverse({**run.outputs, "codes": codes}, run.scope)["in"].shape == (4,)  # type: ignore[union-attr]

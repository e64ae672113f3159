"""Masked quantizers: marks in place of codes, fill values out of the range and back bit for bit, the parameter's forms."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from briquette import outliers
from briquette.errors import PipelineError, UsageError
from briquette.ports import PortType
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope, Stage
from briquette_quantize.linear import LinearQuantizer
from briquette_quantize.log import LogQuantizer
from briquette_quantize.masked import MaskedLogQuantizer, MaskedQuantizer

CHUNK = 8192
BOTH = [("rel", MaskedQuantizer, LinearQuantizer), ("abs", MaskedQuantizer, LinearQuantizer)]
ALL = [*BOTH, ("pwrel", MaskedLogQuantizer, LogQuantizer)]


def run(stage: Stage, values: np.ndarray, mode: str, eb: float = 1e-2) -> tuple[Any, Any, Any, Any]:
    """Return state, codes, positions of what is kept, and what comes back."""
    given = {"in": PortType(values.dtype.name)}
    types = {**given, **stage.output_types(given)}
    context = PrimeContext(values, types, Bound(eb, mode), values.size, missing=stage.missing_values())
    state = stage.prime_fused_forward_state(context)
    scope = Scope(state, types, values.size, CHUNK)
    made = stage.forward({"in": values}, scope)
    where, _ = outliers.decode(made["outliers"], values.size, CHUNK, values.dtype)  # type: ignore[arg-type]
    return state, made["codes"], where, stage.inverse(made, scope)["in"]


def holed(dtype: str, *fills: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a field with NaN of several payloads, an infinity and these fill values in it, and where."""
    x = (np.sin(np.arange(3000) / 50) + 5).astype(dtype)
    holes = np.zeros(x.size, bool)
    bits = x.view(f"u{x.itemsize}")
    quiet = np.array(np.nan, dtype).view(bits.dtype)
    for i in range(8):
        bits[100 * i : 100 * i + 30] = quiet + bits.dtype.type(i)
        holes[100 * i : 100 * i + 30] = True
    x[1000] = np.inf
    holes[1000] = True
    for i, fill in enumerate(fills):
        x[1200 + 300 * i : 1310 + 300 * i] = fill
        holes[1200 + 300 * i : 1310 + 300 * i] = True
    return x, holes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "masked", "plain"), ALL)
def test_marks_and_nothing_else_set_it_apart_from_the_quantizer(mode: str, masked: Any, plain: Any, dtype: str) -> None:
    x, holes = holed(dtype)
    state, codes, where, back = run(masked(), x, mode)
    usual, expected, same, _ = run(plain(), x, mode)
    mark = np.iinfo(codes.dtype).min
    assert {**state, "fill_code": usual["fill_code"]} == usual
    assert state["fill_code"] == mark
    assert ((codes == mark) == holes).all()
    assert np.array_equal(codes[~holes], expected[~holes])
    assert np.array_equal(where, same)
    assert back[holes].tobytes() == x[holes].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fills", [(1e20,), (-9999.0, 1e20), (9.96921e36, -999.99, 0.0, -0.1)])
@pytest.mark.parametrize(("mode", "masked", "plain"), ALL)
def test_fill_values_are_missing(mode: str, masked: Any, plain: Any, fills: tuple[float, ...], dtype: str) -> None:
    x, holes = holed(dtype, *fills)
    state, codes, where, back = run(masked(fill_values=" ".join(map(repr, fills))), x, mode)
    blank = np.where(holes, np.nan, x).astype(dtype)
    usual, expected, _, _ = run(masked(), blank, mode)
    assert state == usual, "the range is that of what is there"
    assert np.array_equal(codes, expected)
    assert np.array_equal(where, np.flatnonzero(holes))
    assert back[holes].tobytes() == x[holes].tobytes()


def test_zeros_of_either_sign_are_two_values() -> None:
    x = np.array([0.0, -0.0, 1.0, 2.0])
    _, codes, where, back = run(MaskedQuantizer(fill_values="-0.0"), x, "abs")
    assert where.tolist() == [1]
    assert codes.tolist() == [0, np.iinfo(np.int64).min, 50, 101]
    assert back.view(np.uint64)[1] == 1 << 63


def test_a_code_that_fits_stays_though_its_value_is_kept() -> None:
    x = (1e6 + np.sin(np.arange(3000) / 300)).astype(np.float32)
    _, codes, where, _ = run(MaskedQuantizer(), x, "abs", 0.1)
    assert where.size
    assert (codes != np.iinfo(np.int32).min).all()


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("", ""),
        (1e20, "1e+20"),
        (-9999, "-9999.0"),
        ("1e20", "1e+20"),
        ("1e20, -9999 1e20", "1e+20 -9999.0"),
        ("nan 3 inf", "3.0"),
        (math.nan, ""),
    ],
)
@pytest.mark.parametrize("stage", [MaskedQuantizer, MaskedLogQuantizer])
def test_the_parameter_has_one_form(stage: Any, given: Any, held: str) -> None:
    made = stage(fill_values=given)
    assert made.fill_values == held
    assert made == stage.from_parameters(made.parameters()) == pickle.loads(pickle.dumps(made))
    assert made.missing_values() == tuple(map(float, held.split()))


@pytest.mark.parametrize("given", ["x", True, None, [1.0], "1 2 3 4 5", "1e400x"])
def test_what_are_no_fill_values(given: Any) -> None:
    with pytest.raises(PipelineError, match="fill_values"):
        MaskedQuantizer(fill_values=given)


def test_fill_values_add_up() -> None:
    stage = MaskedQuantizer("int32", "7").with_missing_values((1e20, 7.0))
    assert stage == MaskedQuantizer("int32", "7.0 1e+20")
    assert LinearQuantizer().with_missing_values((1.0,)) is None
    with pytest.raises(UsageError, match="5 values; it takes at most 4"):
        stage.with_missing_values((1.0, 2.0, 3.0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mode", "masked", "plain"), [ALL[0], ALL[2]])
def test_device_parameters(mode: str, masked: Any, plain: Any, dtype: str) -> None:
    x, _ = holed(dtype, 1e20)
    op = masked().fused_op()
    assert (op.op_name, op.geometry) == (f"Masked{plain.__name__.removesuffix('Quantizer')}", plain().fused_op().geometry)
    assert op.params == plain().fused_op().params
    stage = masked(fill_values="1e20 3")
    op = stage.fused_op()
    assert (op.op_name, op.geometry) == (f"Filled{plain.__name__.removesuffix('Quantizer')}", {"head": 1})
    given = {"in": PortType(dtype)}
    values = stage.fused_params(run(stage, x, mode)[0], {**given, **stage.output_types(given)})
    assert op.params is not None
    assert len(op.params.pack(values)) == op.params.size
    kind = f"i{np.dtype(dtype).itemsize}"
    bits = [int(np.array(v, dtype).view(kind)) for v in (1e20, 3.0, np.nan, np.nan)]
    assert [values[f"missing{i}"] for i in range(4)] == bits

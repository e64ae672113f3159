"""16-bit floats: conversions against NumPy's and ml_dtypes', in NumPy and in C++, and the linear quantizer's rule for them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from briquette import outliers
from briquette.ports import PortType
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope
from briquette_quantize.bound import step_for
from briquette_quantize.linear import LinearQuantizer
from briquette_quantize.narrow import narrow, widen

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 comes from ml_dtypes")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(np.float16), BFLOAT16]
#: largest finite value, unit in the last place of 1, smallest unit
SHAPE = {"float16": (65504.0, 2.0**-10, 2.0**-24), "bfloat16": (3.3895313892515355e38, 2.0**-7, 2.0**-133)}


def patterns(dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.arange(65536, dtype=np.uint16).view(dtype)


def floats(dtype: np.dtype[Any]) -> NDArray[np.float32]:
    """Every value of the type, what lies halfway to the next and just beside that, and float32 of every exponent."""
    every = widen(patterns(dtype))
    every = np.sort(every[np.isfinite(every)])
    with np.errstate(over="ignore"):
        halfway = (every[1:].astype(np.float64) / 2 + every[:-1].astype(np.float64) / 2).astype(np.float32)
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    largest = np.float32(SHAPE[dtype.name][0])
    ends = np.array([65519.996, 65520.0, 65520.004, 3.3961775e38, 3.4028235e38, np.inf, -np.inf], np.float32)
    beside = [np.nextafter(halfway, np.float32(end)) for end in (np.inf, -np.inf)]
    found = np.concatenate([every, halfway, *beside, bits, ends, -ends, [largest, -largest]]).astype(np.float32)
    return found[~np.isnan(found)]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_conversions_are_those_of_the_libraries(dtype: np.dtype[Any]) -> None:
    every = patterns(dtype)
    assert np.array_equal(widen(every), every.astype(np.float32), equal_nan=True)
    x = floats(dtype)
    with np.errstate(over="ignore", under="ignore"):
        assert np.array_equal(narrow(x, dtype).view(np.uint16), x.astype(dtype).view(np.uint16))


_CONVERT = """#include <briquette_warp/cuda/policy.cuh>
template <class X> static int32_t convert(uint64_t *s) {
  const X *narrow = reinterpret_cast<const X *>(s[1]);
  float *wide = reinterpret_cast<float *>(s[2]);
  for (uint64_t i = 0; i < s[3]; i++) wide[i] = float(narrow[i]);
  const float *values = reinterpret_cast<const float *>(s[4]);
  X *found = reinterpret_cast<X *>(s[5]);
  for (uint64_t i = 0; i < s[6]; i++) found[i] = X::nearest(values[i]);
  return 0;
}
extern "C" __attribute__((visibility("default"))) int32_t convert(uint64_t *s) {
  return s[0] ? convert<briquette::BFloat16>(s) : convert<briquette::Half>(s);
}
"""


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_policies_convert_bit_for_bit(dtype: np.dtype[Any]) -> None:
    from briquette.discovery import registry
    from briquette.target import KernelSource

    target = registry().target("host")
    if target.unavailable():
        pytest.skip(f"no host target: {target.unavailable()}")
    module = target.compile(KernelSource("convert-narrow", _CONVERT, ("convert",)))
    # the first is what a GPU makes
    nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF8FFFFF], np.uint32)
    every, x = patterns(dtype), np.concatenate([floats(dtype), nans.view(np.float32)])
    wide, found = np.empty(every.size, np.float32), np.empty(x.size, np.uint16)
    slots = np.array([dtype is BFLOAT16, 0, 0, every.size, 0, 0, x.size], np.uint64)
    slots[[1, 2, 4, 5]] = every.ctypes.data, wide.ctypes.data, x.ctypes.data, found.ctypes.data
    module.call("convert", slots)
    finite = np.isfinite(widen(every))
    assert np.array_equal(wide.view(np.uint32)[finite], widen(every).view(np.uint32)[finite])
    assert np.array_equal(wide, widen(every), equal_nan=True)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = narrow(x, dtype)
    assert np.array_equal(found[: -nans.size], expected.view(np.uint16)[: -nans.size])
    assert np.isnan(widen(found[-nans.size :].view(dtype))).all()
    assert np.isnan(widen(expected[-nans.size :])).all()


def quantized(x: NDArray[Any], eb: float, mode: str, code_type: str = "auto") -> tuple[NDArray[Any], NDArray[Any], int, float]:
    """Return what comes back, the codes, how many values are kept aside, and the bound."""
    stage = LinearQuantizer(code_type=code_type)
    given = {"in": PortType(x.dtype.name)}
    types = {**given, **stage.output_types(given)}
    state = stage.prime_fused_forward_state(PrimeContext(x, types, Bound(eb, mode), x.size))
    scope = Scope(state, types, x.size, 8192)
    out: Any = stage.forward({"in": x}, scope)
    back: Any = stage.inverse(out, scope)["in"]
    kept = outliers.decode(out["outliers"], x.size, 8192, x.dtype)[0].size
    return back, out["codes"], kept, float(state["eb"])  # type: ignore[arg-type]


def assert_bound(x: NDArray[Any], y: NDArray[Any], eb: float) -> None:
    wide, back = widen(x), widen(y)
    special = ~np.isfinite(wide)
    assert np.array_equal(x.view(np.uint16)[special], y.view(np.uint16)[special])
    a, b = wide[~special].astype(np.float64), back[~special].astype(np.float64)
    near = np.abs(a - b) > eb * (1 - 2.0**-50)  # the others are decided, whatever the difference was rounded by
    for p, q in {*zip(a[near].tolist(), b[near].tolist(), strict=True)}:
        assert abs(Fraction(p) - Fraction(q)) <= Fraction(eb)


@pytest.mark.parametrize("code_type", ["auto", "int16", "int64"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_value_there_is_comes_back_within_every_bound(dtype: np.dtype[Any], code_type: str) -> None:
    x = patterns(dtype)
    largest, unit, lowest = SHAPE[dtype.name]
    for eb in (lowest / 4, lowest / 2, lowest, 3 * lowest, 1e-6, unit / 3, unit / 2, 0.6 * unit, unit, 1.7 * unit, 0.1, 3.0, 1e4):
        y, codes, _, _ = quantized(x, eb, "abs", code_type)
        assert codes.dtype == ("int32" if code_type == "auto" else code_type)
        assert_bound(x, y, eb)
    for eb in (1e-8, 1e-4, 1e-3, 0.3, 2.0):
        y, _, _, resolved = quantized(x, eb, "rel", code_type)
        assert_bound(x, y, resolved)
        assert resolved <= 2 * eb * largest


@pytest.mark.parametrize("mode", ["abs", "rel"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rounding_keeps_nothing_aside(dtype: np.dtype[Any], mode: str) -> None:
    """Bounds near the unit in the last place, where narrowing moves a reconstruction by as much as quantization does."""
    unit = SHAPE[dtype.name][1]
    x = np.random.default_rng(1).uniform(0.25, 4.0, 20_000).astype(np.float32).astype(dtype)
    for factor in (0.3, 0.5, 0.51, 0.75, 0.99, 1.0, 1.3, 1.5, 2.01, 3.7, 5.0, 17.0, 60.3):
        eb = factor * 2 * unit  # the largest values have units of 2 * unit
        y, _, kept, resolved = quantized(x, eb if mode == "abs" else eb / 3.75, mode)
        assert_bound(x, y, resolved)
        assert kept == 0, factor


def test_the_step_is_no_smaller_than_the_rule_of_wider_types() -> None:
    half = 2.0**-10  # of a unit, for magnitudes of 2 to 4
    for eb in np.linspace(half * 1.001, 40 * half, 500).tolist():
        step, inverse = step_for(eb, 3.0, np.dtype(np.float16))
        assert 2 * (eb - half) * (1 - 2.0**-7) <= step <= 2 * eb * (1 - 2.0**-7)
        assert inverse == 1.0 / step
    for eb in (half / 3, 0.3, 1.0, 1e-7):
        assert step_for(eb, None, np.dtype(np.float16))[0] == 2 * 2.0 ** math.floor(math.log2(eb)) * (1 - 2.0**-7)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_specials_keep_their_bits(dtype: np.dtype[Any]) -> None:
    bits = np.array([0x7C00, 0xFC00, 0x7C01, 0x7E12, 0xFFFF, 0x7F80, 0xFF80, 0x7FC1, 0x7F81, 0x8000, 0x0001, 0x8001], np.uint16)
    x = np.resize(bits, 500).view(dtype)
    y, _, _, _ = quantized(x, 1e-9, "abs")
    special = ~np.isfinite(widen(x))
    assert np.array_equal(y.view(np.uint16)[special], x.view(np.uint16)[special])
    assert_bound(x, y, 1e-9)

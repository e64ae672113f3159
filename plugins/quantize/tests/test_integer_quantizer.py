"""The integer quantizer: its NumPy form against Python integers, its parameters, and what its policy resolves on a device."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from briquette.bounds import Extent, extent
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import INTEGER_DTYPES, PortType
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope
from briquette_quantize.integer import _PARAMS, IntegerQuantizer, _reciprocal
from briquette_quantize.linear import LinearQuantizer

TYPES = sorted(INTEGER_DTYPES)


def typed(dtype: str) -> dict[str, PortType]:
    given = {"in": PortType(dtype)}
    return {**given, **IntegerQuantizer().output_types(given)}


def samples(dtype: str) -> np.ndarray:
    """The ends of the type, what lies around zero and around powers of two, and values of every magnitude."""
    ends, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
    rng = np.random.default_rng(bits)
    found = [*range(ends.min, ends.min + 40), *range(ends.max - 40, ends.max + 1), *range(-40, 40)]
    found += [sign * (1 << k) + d for k in range(bits) for d in (-1, 0, 1) for sign in (-1, 1)]
    found += [int(rng.integers(0, 1 << 63)) >> int(rng.integers(0, 63)) for _ in range(300)]
    return np.array([v for v in found if ends.min <= v <= ends.max], dtype)


def bounds_of(dtype: str) -> list[float]:
    half = float(2 ** (8 * np.dtype(dtype).itemsize - 1))
    return [0.5, 1, 1.5, 2, 3, 7, 40, half / 3, half / 2 - 1, half - 1, half, 2 * half, 4 * half, 1e300]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_integer_comes_back_within_the_bound(dtype: str) -> None:
    x, stage, types = samples(dtype), IntegerQuantizer(), typed(dtype)
    for eb in (None, *bounds_of(dtype)):
        bound = None if eb is None else Bound(eb)
        state = stage.prime_fused_forward_state(PrimeContext(x, types, bound, x.size))
        scope = Scope(state, types, x.size, 8192)
        codes: Any = stage.forward({"in": x}, scope)["codes"]
        back: Any = stage.inverse({"codes": codes}, scope)["in"]
        assert (codes.dtype.name, back.dtype.name) == (types["codes"].dtype, dtype)
        limit = 0 if eb is None else int(eb)
        assert max(abs(a - b) for a, b in zip(x.tolist(), back.tolist(), strict=True)) <= limit
        if limit == 0:
            assert np.array_equal(x, back)
        else:
            step = state["quant_step"]
            assert isinstance(step, int)
            exact = [(abs(a) + step // 2) // step * (1 if a >= 0 else -1) for a in x.tolist()]
            assert codes.tolist() == exact, "the nearest multiple of the step"


@pytest.mark.parametrize("dtype", TYPES)
def test_codes_no_integer_has_are_clamped(dtype: str) -> None:
    stage, types = IntegerQuantizer(), typed(dtype)
    ends, code = np.iinfo(dtype), np.iinfo(types["codes"].dtype)
    codes = np.array([code.min, code.max, 0], types["codes"].dtype)
    scope = Scope({"eb": 3, "quant_step": 7}, types, 3, 8192)
    back: Any = stage.inverse({"codes": codes}, scope)["in"]
    assert back.tolist() == [ends.min, ends.max, 0]


@pytest.mark.parametrize("bits", [32, 64])
def test_the_reciprocal_divides_exactly(bits: int) -> None:
    rng, top = np.random.default_rng(bits), (1 << bits) - 1
    steps = [3, 5, 7, 9, 641, top, top - 2, (1 << bits - 1) + 1, (1 << bits - 1) - 1]
    steps += [int(rng.integers(1, 1 << 62)) >> int(rng.integers(0, 61)) & top | 1 for _ in range(200)]
    for step in {s for s in steps if s > 1}:
        magic, shift = _reciprocal(step, bits)
        assert 0 < magic <= top
        near = [k * step + d for k in (0, 1, 2, top // step // 2, top // step) for d in (-1, 0, 1, step - 1)]
        for x in [*near, top, top - 1, *(int(v) & top for v in rng.integers(0, 1 << 63, 50))]:
            if 0 <= x <= top:
                t = (magic * x) >> bits
                assert (t + ((x - t) >> 1)) >> shift == x // step


def test_relative_bounds_are_the_floor_of_the_range() -> None:
    for dtype in ("int64", "uint64"):
        ends = np.iinfo(dtype)
        x = np.array([ends.min, ends.max, 5], dtype)
        for rel in (1e-3, 1e-17, 1e-20, 1.0, 3.0):
            state = IntegerQuantizer().prime_fused_forward_state(PrimeContext(x, typed(dtype), Bound(rel, "rel"), 3))
            assert state["range"] == ends.max - ends.min == 2**64 - 1
            assert state["eb"] == min(int(Fraction(rel) * (2**64 - 1)), 2**63 - 1)


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"eb": 1},
        {"eb": 1, "quant_step": 2},
        {"eb": -1, "quant_step": -1},
        {"eb": 1.0, "quant_step": 3},
        {"eb": True, "quant_step": 3},
        {"eb": 128, "quant_step": 257},
    ],
)
def test_a_state_no_run_resolves_is_refused(state: dict[str, Any]) -> None:
    scope = Scope(state, typed("int8"), 1, 8192)
    with pytest.raises(ArchiveError, match="no bound of int8"):
        IntegerQuantizer().inverse({"codes": np.zeros(1, np.int16)}, scope)


def test_it_takes_integers_and_stands_in_for_the_linear_quantizer() -> None:
    with pytest.raises(PipelineError, match="takes integers, not float32"):
        IntegerQuantizer().output_types({"in": PortType("float32")})
    assert LinearQuantizer().stand_in("uint8") == IntegerQuantizer()
    assert LinearQuantizer().stand_in("bfloat16") == LinearQuantizer()
    assert LinearQuantizer(code_type="int32").stand_in("uint8") == LinearQuantizer(code_type="int32")


_RESOLVE = """#include <briquette_quantize/cuda/integer.cuh>
{struct}
template <class X, class C> static void one(uint64_t *s) {{
  double eb;
  memcpy(&eb, s + 4, 8);
  Params p;
  memset(&p, 0, sizeof p);
  briquette_quantize::IntegerQuantizer::resolve<X, C>(X(s[1]), X(s[2]), X(s[1]), true, s[3] != 0, eb, p);
  memcpy(s + 8, &p, sizeof p);
}}
extern "C" __attribute__((visibility("default"))) int32_t resolve(uint64_t *s) {{
  switch (s[0]) {{
{cases}
  }}
  return 0;
}}
"""


def test_the_policy_resolves_as_priming_does() -> None:
    from briquette.discovery import registry
    from briquette.target import KernelSource

    target = registry().target("host")
    if target.unavailable():
        pytest.skip(f"no host target: {target.unavailable()}")
    cases = "\n".join(f"    case {i}: one<{t}_t, {typed(t)['codes'].dtype}_t>(s); break;" for i, t in enumerate(TYPES))
    text = _RESOLVE.format(struct=_PARAMS.c_source("Params"), cases=cases)
    module = target.compile(KernelSource("resolve-integers", text, ("resolve",)))
    rng = np.random.default_rng(5)
    stage = IntegerQuantizer()
    for number, dtype in enumerate(TYPES):
        x, types = samples(dtype), typed(dtype)
        pairs = [(int(x.min()), int(x.max())), (5, 5), *(sorted(rng.choice(x, 2).tolist()) for _ in range(12))]
        bounds = [(eb, "abs") for eb in [*bounds_of(dtype), 1e-300, 2.0**53 + 2]]
        bounds += [(eb, "rel") for eb in (1e-3, 0.1, 1.0, 7.0, 1e-16, 1e-19, 1e-20, 5e-324, 1e19, 1e300)]
        bounds += [(float(np.exp2(rng.uniform(-70, 8))), "rel") for _ in range(12)]
        for low, high in pairs:
            for eb, mode in bounds:
                slots = np.zeros(16, np.uint64)
                slots[:4] = number, low % 2**64, high % 2**64, mode == "rel"
                slots[4] = struct.unpack("<Q", struct.pack("<d", eb))[0]
                module.call("resolve", slots)
                context = PrimeContext(None, types, Bound(eb, mode), 9, Extent(low, high, low))
                state = stage.prime_fused_forward_state(context)
                expected = _PARAMS.pack(stage.fused_params(state, types))
                assert slots[8:].tobytes()[: _PARAMS.size] == expected, (dtype, low, high, eb, mode)


def test_extents_of_integers_are_exact() -> None:
    x = np.array([2**63 - 3, -(2**63) + 1, 7], np.int64)
    found = extent(x)
    assert (found.lo, found.hi, found.first) == (-(2**63) + 1, 2**63 - 3, 2**63 - 3)
    assert all(isinstance(v, int) for v in (found.lo, found.hi, found.first))

"""Quantizers without a side stream: where no code fits, the value's own bits stand in the stream of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette.bounds import Extent
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import FLOAT_DTYPES, INTEGER_DTYPES, Chunked, PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage

from .integer import IntegerQuantizer
from .linear import _PARAMS as _LINEAR
from .linear import _resolved, _rule, params_of, primed
from .log import _PARAMS as _LOG
from .log import LogQuantizer
from .log import _Rule as _LogRule

_HEADER: Final = "briquette_quantize/cuda/in_place.cuh"
_PLACES: Final = (("half", "uint64"), ("count", "uint64"), ("offset", "uint64"), ("near", "uint64"))
#: steps from here on are infinite as float32
_MOST: Final = float.fromhex("0x1.ffffffp+127")
_HARNESSES: Final = ("chunk-cooperative", "warp-register")
#: bits of infinity, without the sign, by dtype
_INFINITE: Final = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF << 52}


@dataclass(frozen=True)
class _Places:
    """Which words are codes, and where values' own bits stand.

    The `count` bit patterns around `offset` belong to no value that is ever without a code. They, less the offset, are the codes:
    signed integers of a magnitude of at most half the count. A value without a code is its own bits less the offset.

    Parameters
    ----------
    bits : int
        Of an element.
    offset, count : int
        `count` is odd, or 0.
    near : int
        Magnitudes whose bits are below this one are within the bound of 0.
    """

    bits: int
    offset: int
    count: int
    near: int = 0

    @classmethod
    def between(cls, bits: int, first: int, last: int, near: int = 0) -> _Places:
        """Return the places of codes within the bit patterns `first` to `last`, of which there may be none."""
        return cls(bits, (first + last) // 2, (last - first) // 2 * 2 + 1 if first <= last else 0, near)

    @property
    def half(self) -> int:
        return self.count // 2

    def params(self) -> dict[str, Scalar]:
        return {"half": self.half, "count": self.count, "offset": self.offset, "near": self.near}

    def are_codes(self, words: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which words, of the signed type, are codes."""
        unsigned = words.view(f"u{words.itemsize}")
        found: NDArray[np.bool_] = unsigned + unsigned.dtype.type(self.half) < unsigned.dtype.type(self.count)
        return found

    def put(self, codes: NDArray[Any], values: NDArray[Any], lacking: NDArray[np.bool_]) -> None:
        """Write the bits of the values that are `lacking` a code into `codes`, and 0 for those that are as good as 0."""
        if not lacking.any():
            return
        kind = np.dtype(f"u{values.itemsize}")
        bits = values[lacking].view(kind)
        near = bits & kind.type((1 << self.bits - 1) - 1) < kind.type(self.near)
        codes[lacking] = np.where(near, kind.type(0), bits - kind.type(self.offset)).view(codes.dtype)

    def restore(self, words: NDArray[Any], values: NDArray[Any], codes: NDArray[np.bool_]) -> None:
        """Write the values whose bits `words` hold into `values`."""
        kind = np.dtype(f"u{values.itemsize}")
        aside = ~codes
        values[aside] = (words[aside].view(kind) + kind.type(self.offset)).view(values.dtype)


class _InPlace(Stage):
    """What both have in common."""

    outputs: ClassVar[tuple[str, ...]] = ("codes",)
    needs_bound: ClassVar[bool] = True

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Quantize ``in``, shape (count,), into ``codes``."""
        values: NDArray[Any] = np.asarray(inputs["in"])
        rule, places = self._arithmetic(scope.state, scope.types)
        with np.errstate(all="ignore"):
            codes, kept = rule.quantize(values)
        lacking = ~places.are_codes(codes)
        if kept is not None:
            lacking |= kept
        places.put(codes, values, lacking)
        scope.tally("outliers", int(np.count_nonzero(~places.are_codes(codes))))
        return {"codes": codes}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the values ``in`` back; raise `ArchiveError` if the record cannot belong to the codes."""
        words = outputs["codes"]
        if isinstance(words, Chunked):
            raise ArchiveError(f"stage {self.name!r} was not given a stream of codes")
        rule, places = self._arithmetic(scope.state, scope.types)
        are = places.are_codes(words)
        if are.all():
            with np.errstate(all="ignore"):
                return {"in": rule.dequantize(words)}
        with np.errstate(all="ignore"):
            values = rule.dequantize(np.where(are, words, words.dtype.type(0)))
        places.restore(words, values, are)
        return {"in": values}

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE; heads a group."""
        return FusionSpec(FusionAccess.ELEMENTWISE, 1)

    def _arithmetic(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> tuple[Any, _Places]:
        """Return a rule, which quantizes and dequantizes, and the places of its codes."""
        raise NotImplementedError


@dataclass(frozen=True)
class InPlaceQuantizer(_InPlace):
    """Quantize values to ``rint(value / step)``; each one that would miss the bound stands in the stream as it is.

    As `linear-quantizer`, but with one output, ``codes``: signed integers as wide as the values, among which values without a
    code are their own bits, less an offset. NaN and infinities are among them, and come back bit for bit.

    Notes
    -----
    A value within the bound of 0 always has a code. The bit patterns of such values from +0 up therefore never stand for
    themselves, and are the codes instead, the middle one being 0. In PFPL (Fallin et al., IPDPS 2025) outliers stand in the
    stream in the same way, with the patterns of subnormal values for codes; the patterns of all values below the bound leave
    room for many more. For range-relative bounds the step is closer to twice the bound than that of `linear-quantizer`.
    """

    name: ClassVar[str] = "in-place-quantizer"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the type of the codes; raise `PipelineError` for anything but a floating-point stream."""
        given = inputs["in"]
        if given.layout != "stream" or given.dtype not in FLOAT_DTYPES:
            raise PipelineError(
                f"stage {self.name!r} takes {', '.join(sorted(FLOAT_DTYPES))} values, not {given}; "
                f"integers go to stage integer-quantizer"
            )
        return {"codes": PortType(f"int{8 * given.itemsize}")}

    def stand_in(self, dtype: str) -> Stage:
        """Return the integer quantizer for integers."""
        return IntegerQuantizer() if dtype in INTEGER_DTYPES else self

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve the bound and the step.

        Returns
        -------
        mapping
            ``eb`` (absolute bound), ``quant_step``, ``inverse_step``, and ``range`` for range-relative bounds.
        """
        return primed(ctx, self.name, close=True)[0]

    def _parts(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> tuple[tuple[Any, ...], _Places]:
        resolved = _resolved({**state, "fill_code": 0}, types)
        dtype = resolved[4]
        bits, top = 8 * dtype.itemsize, _bits_toward_zero(resolved[0], dtype)
        if dtype.itemsize < 8 and resolved[1] >= _MOST:  # 0 times such a step is no number in float32
            return (*resolved, 0), _Places(bits, 0, 0)
        places = _Places.between(bits, 0, top, top + 1)
        return (*resolved, places.half), places

    def _arithmetic(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> tuple[Any, _Places]:
        arguments, places = self._parts(state, types)
        return _rule(*arguments), places

    def fused_op(self) -> FusedOp:
        """The policy ``InPlaceQuantizer``, which serves both harnesses."""
        params = ParamStruct((*_LINEAR.fields, *_PLACES))
        return FusedOp(_HARNESSES, "InPlaceQuantizer", _HEADER, params, {"head": 1, "resolves": 1})

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the linear quantizer's parameters, and the places of codes."""
        arguments, places = self._parts(state, types)
        return {**params_of(*arguments), **places.params()}


@dataclass(frozen=True)
class InPlaceLogQuantizer(_InPlace):
    """Quantize the logarithms of magnitudes; each value that would miss the bound stands in the stream as it is.

    As `log-quantizer`, for point-wise relative bounds, but with one output, ``codes``: signed integers as wide as the values,
    among which values without a code are their own bits, less an offset.

    Notes
    -----
    Codes are bit patterns that the data cannot have: of the finite magnitudes above their largest one, or of the sign that
    none of them has. Where both signs occur and magnitudes reach the largest finite one, nothing is left, and all values
    stand in the stream as they are.
    """

    name: ClassVar[str] = "in-place-log-quantizer"
    bound_modes: ClassVar[tuple[str, ...]] = LogQuantizer.bound_modes

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the type of the codes; raise `PipelineError` for anything but a float32 or float64 stream."""
        return {"codes": LogQuantizer().output_types(inputs)["codes"]}

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve what `log-quantizer` does, and the places of codes: ``code_places`` of them around the bits ``code_offset``."""
        state = dict(LogQuantizer().prime_fused_forward_state(ctx))
        del state["fill_code"]
        places = _unused(ctx.extent(), ctx.types["in"])
        return {**state, "code_offset": places.offset, "code_places": places.count}

    def _arithmetic(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> tuple[Any, _Places]:
        bits = 8 * types["in"].itemsize
        offset, count = state.get("code_offset"), state.get("code_places")
        for name, number in (("code_offset", offset), ("code_places", count)):
            if type(number) is not int or not 0 <= number < 1 << bits:
                raise ArchiveError(f"the run record's {name!r} is {number!r}, not an integer of {bits} bits")
        assert isinstance(offset, int)
        assert isinstance(count, int)
        return _LogRule.from_state({**state, "fill_code": 0}, types), _Places(bits, offset, count)

    def fused_op(self) -> FusedOp:
        """The policy ``InPlaceLogQuantizer``, which serves both harnesses."""
        return FusedOp(_HARNESSES, "InPlaceLogQuantizer", _HEADER, ParamStruct((*_LOG.fields, *_PLACES)), {"head": 1})

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the log quantizer's parameters, and the places of codes."""
        places = self._arithmetic(state, types)[1]
        return {**LogQuantizer().fused_params({**state, "fill_code": 0}, types), **places.params()}


def _bits_toward_zero(value: float, dtype: np.dtype[Any]) -> int:
    """Return the bits of `value`, which is not negative, rounded toward zero to a floating-point `dtype`."""
    with np.errstate(over="ignore", under="ignore"):
        near = np.array([value]).astype(dtype)
    bits = int(near.view(f"u{dtype.itemsize}")[0])
    return bits - 1 if float(near[0]) > value else bits


def _unused(over: Extent, given: PortType) -> _Places:
    """Return the most bit patterns in a row that no finite value of this extent has, and no NaN or infinity."""
    bits, infinite = 8 * given.itemsize, _INFINITE[given.dtype]
    sign = 1 << bits - 1
    found = [(_bits_toward_zero(over.magnitude, given.numpy) + 1, infinite - 1)]
    if over.lo >= 0.0:
        found.append((sign + 1, sign + infinite - 1))
    elif over.hi <= 0.0:
        found.append((1, infinite - 1))
    first, last = max(found, key=lambda ends: ends[1] - ends[0])
    return _Places.between(bits, first, last)

"""The integer quantizer: integers of any type to codes, without loss, or at an odd step under an integer bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette import bounds
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import INTEGER_DTYPES, PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage

_PARAMS: Final = ParamStruct(
    (("step", "uint64"), ("bound", "uint64"), ("magic", "uint64"), ("low", "int64"), ("high", "int64"), ("shift", "uint32"))
)


@dataclass(frozen=True)
class IntegerQuantizer(Stage):
    """Turn integers into signed codes: themselves, or the nearest multiples of ``2 * eb + 1`` divided by it.

    Without an error bound, or with one below 1, every integer comes back as it is. With one of `eb` (rounded down to an
    integer) every integer comes back within it, exact at the ends of the type's range, so nothing is kept aside.
    8-bit integers have int16 codes, wider ones codes of their own width; differences of codes are modulo 2**bits, so unsigned
    integers beyond half their range, which as codes are negative, cost no more than others.

    Notes
    -----
    Rounding to the nearest multiple of an odd step is the uniform quantizer of near-lossless image coding (JPEG-LS, ITU-T
    T.87, "NEAR"; Weinberger, Seroussi and Sapiro, 2000), applied before prediction as in cuSZ (Tian et al., 2020).
    """

    name: ClassVar[str] = "integer-quantizer"
    outputs: ClassVar[tuple[str, ...]] = ("codes",)
    takes_bound: ClassVar[bool] = True

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the type of the codes; raise `PipelineError` for anything but a stream of integers."""
        given = inputs["in"]
        if given.layout != "stream" or given.dtype not in INTEGER_DTYPES:
            raise PipelineError(f"stage {self.name!r} takes integers, not {given}; use linear-quantizer for others")
        return {"codes": PortType(f"int{8 * max(given.itemsize, 2)}")}

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve the bound.

        Returns
        -------
        mapping
            ``eb`` (absolute bound, an integer), ``quant_step``, and ``range`` for range-relative bounds.
        """
        state: dict[str, Scalar] = {}
        over = bounds.Extent(0, 0, 0)
        if ctx.bound is not None and ctx.bound.mode == "rel":
            over = ctx.extent()
            state["range"] = int(over.hi) - int(over.lo)
        eb = min(bounds.integer_bound(ctx.bound, over), _largest_bound(ctx.types["in"].numpy))
        return {**state, "eb": eb, "quant_step": 2 * eb + 1}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Quantize ``in``, shape (count,), into ``codes``."""
        values: NDArray[Any] = np.asarray(inputs["in"])
        eb, code = _bound(scope), scope.types["codes"].numpy
        if not eb:
            return {"codes": values.astype(code)}
        unsigned = np.dtype(np.uint64 if values.itemsize == 8 else np.uint32)
        size = values.astype(unsigned)  # sign extended: its negative is the magnitude, that of the lowest integer included
        negative = values < 0
        np.negative(size, out=size, where=negative)
        q = size // unsigned.type(2 * eb + 1)
        q += size - q * unsigned.type(2 * eb + 1) > unsigned.type(eb)
        np.negative(q, out=q, where=negative)
        return {"codes": q.astype(code)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the integers ``in`` back; raise `ArchiveError` if the record cannot belong to them."""
        codes: NDArray[Any] = np.asarray(outputs["codes"])
        eb, dtype = _bound(scope), scope.types["in"].numpy
        if not eb:
            return {"in": codes.astype(dtype)}
        low, high = _code_range(eb, dtype)
        values = (codes.astype(np.uint64) * np.uint64(2 * eb + 1)).astype(dtype)
        values[codes < low] = np.iinfo(dtype).min
        values[codes > high] = np.iinfo(dtype).max
        return {"in": values}

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE; heads a group."""
        return FusionSpec(FusionAccess.ELEMENTWISE, 1)

    def fused_op(self) -> FusedOp:
        """The policy ``IntegerQuantizer``, which serves both harnesses."""
        geometry = {"head": 1, "resolves": 1}
        strategies = ("warp-register", "chunk-cooperative")
        return FusedOp(strategies, "IntegerQuantizer", "briquette_quantize/cuda/integer.cuh", _PARAMS, geometry)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the policy's parameters: step and bound, the reciprocal of the step, and the codes at the type's ends."""
        dtype = types["in"].numpy
        eb = _checked_bound(state, dtype)
        step = 2 * eb + 1
        low, high = _code_range(eb, dtype)
        magic, shift = _reciprocal(step, 64 if dtype.itemsize == 8 else 32) if eb else (0, 0)
        return {"step": step, "bound": eb, "magic": magic, "low": low, "high": high, "shift": shift}


def _largest_bound(dtype: np.dtype[Any]) -> int:
    """Return the largest bound that makes a difference: with it every integer is within a step of 0."""
    return int((1 << 8 * dtype.itemsize - 1) - 1)


def _bound(scope: Scope) -> int:
    return _checked_bound(scope.state, scope.types["in"].numpy)


def _checked_bound(state: Mapping[str, Scalar], dtype: np.dtype[Any]) -> int:
    """Take the resolved bound; raise `ArchiveError` where it cannot be one (archives are not trusted)."""
    eb, step = state.get("eb"), state.get("quant_step")
    if type(eb) is not int or type(step) is not int or not 0 <= eb <= _largest_bound(dtype) or step != 2 * eb + 1:
        raise ArchiveError(f"the run record's 'eb' {eb!r} and 'quant_step' {step!r} are no bound of {dtype} and its step")
    return eb


def _code_range(eb: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the lowest and the highest code whose multiple of the step is of the type (codes themselves without a bound)."""
    ends = np.iinfo(dtype)
    if not eb:
        return 0, 0
    return -(-int(ends.min) // (2 * eb + 1)), int(ends.max) // (2 * eb + 1)


def _reciprocal(step: int, bits: int) -> tuple[int, int]:
    """Return multiplier and shift that divide every unsigned integer of `bits` bits by the odd `step` > 1.

    With ``t = (magic * x) >> bits`` the quotient is ``(t + ((x - t) >> 1)) >> shift`` (Granlund and Montgomery, Division by
    invariant integers using multiplication, PLDI 1994, figure 4.1).
    """
    length = step.bit_length()
    return ((1 << bits) * ((1 << length) - step)) // step + 1, length - 1

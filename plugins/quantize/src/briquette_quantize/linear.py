"""The linear quantizer: values to integer codes at a uniform step, with the bound checked for every value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette import bounds, outliers
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import INTEGER_DTYPES, Chunked, PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage

from .bound import largest_code, step_for, toward_zero
from .narrow import NarrowRule

#: codes of this magnitude and more are computed in float64 for float32 data too
_NARROW: Final = 65536.0
_AUTO: Final = {"float16": "int32", "bfloat16": "int32", "float32": "int32", "float64": "int64"}
_CODE_TYPES: Final = ("auto", "int16", "int32", "int64")
_PARAMS: Final = ParamStruct(
    (
        ("inverse", "float64"),
        ("step", "float64"),
        ("inverse32", "float32"),
        ("step32", "float32"),
        ("bound", "float64"),
        ("limit", "float64"),
        ("bound32", "float32"),
        ("limit32", "float32"),
        ("fill", "int64"),
    )
)
_HARNESSES: Final = ("warp-register", "chunk-cooperative")
_F32: Final = np.dtype(np.float32)


@dataclass(frozen=True)
class LinearQuantizer(Stage):
    """Quantize values to ``rint(value / step)`` and keep aside, bit for bit, each one that would miss the bound.

    Output ``codes`` is a stream of the code type; output ``outliers`` holds NaN, infinities and every value that its
    code does not bring back within the bound. A value without a code (not finite, or too large) takes the fill code:
    that of the stream's first finite value. -0.0 within the bound of 0 comes back as 0.0.

    Parameters
    ----------
    code_type : {"auto", "int16", "int32", "int64"}, optional
        Type of the codes; "auto" (the default) is int64 for float64 data and int32 for narrower ones.

    Raises
    ------
    PipelineError
        If `code_type` is anything else.

    Notes
    -----
    The step is slightly less than twice the bound (by 2**-7, and for range-relative bounds by one unit in the last place
    of the largest magnitude), so that hardly any value becomes an outlier through rounding. Codes below 65,536 are
    computed in the data's type, larger ones in float64; both directions can tell from the code. Data of 16 bits are computed
    in float32 and the reconstruction is narrowed, see `briquette_quantize.narrow`. Quantizing before
    predicting is the "dual quantization" of cuSZ (Tian et al., 2020), used likewise by SZp and cuSZp (Huang et al., SC'23).
    """

    code_type: str = "auto"

    name: ClassVar[str] = "linear-quantizer"
    outputs: ClassVar[tuple[str, ...]] = ("codes", "outliers")
    needs_bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.code_type not in _CODE_TYPES:
            known = ", ".join(_CODE_TYPES)
            raise PipelineError(f"code_type = {self.code_type!r} of stage {self.name!r} is unknown; use one of {known}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the types of codes and outliers; raise `PipelineError` for anything but a floating-point stream."""
        given = inputs["in"]
        if given.layout != "stream" or given.dtype not in _AUTO:
            known = f"{', '.join(list(_AUTO)[:-1])} or {list(_AUTO)[-1]}"
            raise PipelineError(f"stage {self.name!r} takes {known} values, not {given}; integers go to stage integer-quantizer")
        code = _AUTO[given.dtype] if self.code_type == "auto" else self.code_type
        return {"codes": PortType(code), "outliers": PortType(given.dtype, "chunked")}

    def stand_in(self, dtype: str) -> Stage:
        """Return the integer quantizer for integers, unless the type of the codes is given."""
        if dtype not in INTEGER_DTYPES or self.code_type != "auto":
            return self
        from .integer import IntegerQuantizer  # of no use to any other run

        return IntegerQuantizer()

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk in which every value is kept aside."""
        return outliers.max_chunk_words(chunk, types[port].itemsize)

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve the bound, the step and the fill code.

        Returns
        -------
        mapping
            ``eb`` (absolute bound), ``quant_step``, ``inverse_step``, ``fill_code``, and ``range`` for range-relative bounds.
        """
        state, first = primed(ctx, self.name)
        eb, step, inverse = (_not_negative(state, name) for name in ("eb", "quant_step", "inverse_step"))
        dtype, code = ctx.types["in"].numpy, ctx.types["codes"].numpy
        fill = 0
        if first is not None:
            with np.errstate(all="ignore"):
                fill = int(_rule(eb, step, inverse, 0, dtype, code).quantize(np.array([first], dtype))[0][0])
        return {**state, "fill_code": fill}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Quantize ``in``, shape (count,), into ``codes`` and ``outliers``."""
        values: NDArray[Any] = np.asarray(inputs["in"])
        rule = _rule(*_resolved(scope.state, scope.types))
        with np.errstate(all="ignore"):
            codes, kept = rule.quantize(values)
        if kept is None:
            return {"codes": codes, "outliers": outliers.none_kept(values.size, scope.chunk)}
        scope.tally("outliers", int(np.count_nonzero(kept)))
        return {"codes": codes, "outliers": outliers.encode(kept, values, scope.chunk)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the values ``in`` back; raise `ArchiveError` if the outliers or the record cannot belong to them."""
        codes, aside = outputs["codes"], outputs["outliers"]
        if isinstance(codes, Chunked) or not isinstance(aside, Chunked):
            raise ArchiveError(f"stage {self.name!r} was not given a stream of codes and chunked outliers")
        rule = _rule(*_resolved(scope.state, scope.types))
        with np.errstate(all="ignore"):
            values = rule.dequantize(codes)
        outliers.restore(aside, scope.chunk, values)
        return {"in": values}

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE; heads a group."""
        return FusionSpec(FusionAccess.ELEMENTWISE, 1)

    def fused_op(self) -> FusedOp:
        """The policy ``LinearQuantizer``, which serves both harnesses."""
        geometry = {"head": 1, "resolves": 1}
        return FusedOp(_HARNESSES, "LinearQuantizer", "briquette_quantize/cuda/linear.cuh", _PARAMS, geometry)

    def fused_aux_outputs(self) -> tuple[str, ...]:
        """The outliers leave the group beside the codes."""
        return ("outliers",)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the policy's parameters: the state, and what follows from it for both widths."""
        return params_of(*_resolved(state, types))


def primed(ctx: PrimeContext, name: str, close: bool = False) -> tuple[dict[str, Scalar], float | None]:
    """Resolve the bound and the step of the linear quantizer `name`; `close` as for `step_for`.

    Returns
    -------
    state : dict
        ``eb``, ``quant_step``, ``inverse_step``, and ``range`` for range-relative bounds.
    first : float or None
        The first finite value, where there is one.
    """
    if ctx.bound is None:
        raise PipelineError(f"stage {name!r} needs an error bound; give eb=")
    dtype, state = ctx.types["in"].numpy, dict[str, Scalar]()
    if ctx.bound.mode == "rel":
        over = ctx.extent()
        state["range"], eb = bounds.range_bound(ctx.bound.eb, over)
        first: float | None = over.first
        step, inverse = step_for(eb, over.magnitude, dtype, close)
    else:
        eb, first = ctx.bound.eb, ctx.first_finite()
        step, inverse = step_for(eb, None, dtype)
    return {**state, "eb": eb, "quant_step": step, "inverse_step": inverse}, first


def _not_negative(state: Mapping[str, Scalar], name: str) -> float:
    number = state.get(name)
    if not isinstance(number, float) or not (math.isfinite(number) and number >= 0.0):
        raise ArchiveError(f"the run record's {name!r} is {number!r}, not a finite number of at least 0")
    return number


_Resolved = tuple[float, float, float, int, np.dtype[Any], np.dtype[Any]]


def _resolved(state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> _Resolved:
    """Take the resolved state; raise `ArchiveError` where it cannot be one (archives are not trusted)."""
    eb, step, inverse = (_not_negative(state, name) for name in ("eb", "quant_step", "inverse_step"))
    fill, code = state.get("fill_code"), types["codes"].numpy
    top = 1 << 8 * code.itemsize - 1
    if isinstance(fill, bool) or not isinstance(fill, int) or not -top <= fill < top:
        raise ArchiveError(f"the run record's 'fill_code' is {fill!r}, not an {code} code")
    return eb, step, inverse, fill, types["in"].numpy, code


def params_of(
    eb: float, step: float, inverse: float, fill: int, dtype: np.dtype[Any], code: np.dtype[Any], most: int | None = None
) -> dict[str, Scalar]:
    """Return the parameters of the policy ``LinearQuantizer``; `most` as for `_rule`."""
    computed = _F32 if dtype.itemsize == 2 else dtype
    limits = [largest_code(code, d) if most is None else toward_zero(most, d) for d in (computed, _F32)]
    with np.errstate(over="ignore", under="ignore"):
        step32, inverse32 = float(np.float32(step)), float(np.float32(inverse))
    return {
        "inverse": inverse,
        "step": step,
        "inverse32": inverse32,
        "step32": step32,
        "bound": toward_zero(eb, computed),
        "limit": limits[0],
        "bound32": toward_zero(eb, _F32),
        "limit32": limits[1],
        "fill": fill,
    }


def _rule(
    eb: float, step: float, inverse: float, fill: int, dtype: np.dtype[Any], code: np.dtype[Any], most: int | None = None
) -> _Rule | NarrowRule:
    """Return the arithmetic; codes have a magnitude of at most `most`, where given, else of what their type holds."""
    return (NarrowRule if dtype.itemsize == 2 else _Rule)(eb, step, inverse, fill, dtype, code, most)


class _Rule:
    """The arithmetic, which every target mirrors bit for bit: float32 and float64 products, `rint`, comparisons."""

    def __init__(
        self,
        eb: float,
        step: float,
        inverse: float,
        fill: int,
        dtype: np.dtype[Any],
        code: np.dtype[Any],
        most: int | None = None,
    ) -> None:
        self.eb, self.step, self.inverse, self.fill = eb, step, inverse, fill
        self.dtype, self.code = dtype, code
        with np.errstate(over="ignore", under="ignore"):
            self.step32, self.inverse32 = np.float32(step), np.float32(inverse)
        self._single = dtype.itemsize == 4
        self._limit = largest_code(code, dtype) if most is None else toward_zero(most, dtype)

    def quantize(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return the codes, and which values to keep aside (None: none)."""
        if not values.size:
            return np.empty(0, self.code), None
        bound = self.dtype.type(toward_zero(self.eb, self.dtype))
        q: NDArray[Any] = values * (self.inverse32 if self._single else np.float64(self.inverse))
        np.rint(q, out=q)
        if _within(q, min(self._limit, _NARROW - 1.0) if self._single else self._limit):
            codes = q.astype(self.code)
            q *= self.step32 if self._single else np.float64(self.step)  # q is the code already
            q -= values
            return (codes, None) if _within(q, bound) else (codes, ~(np.abs(q, out=q) <= bound))
        codes, fits = self._quantize_any(values, q)
        miss = self.dequantize(codes)
        miss -= values
        kept = ~(np.abs(miss, out=miss) <= bound)
        kept |= ~fits
        return codes, kept

    def _quantize_any(self, values: NDArray[Any], q: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return codes, and which of them fit, where `q` holds NaN, large magnitudes or, for float32, both."""
        if self._single:
            wide = np.flatnonzero(~(np.abs(q) < np.float32(_NARROW)))
            q = q.astype(np.float64)
            q[wide] = np.rint(values[wide].astype(np.float64) * np.float64(self.inverse))
        fits: NDArray[np.bool_] = np.abs(q) <= self._limit
        if fits.all():
            return q.astype(self.code), fits
        unfit = ~fits
        q[unfit] = 0.0
        codes = q.astype(self.code)
        codes[unfit] = self.fill
        return codes, fits

    def dequantize(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the values the codes stand for."""
        values: NDArray[Any] = codes.astype(self.dtype)
        if not self._single:
            values *= np.float64(self.step)
            return values
        if not values.size or _within(values, _NARROW - 1.0):
            values *= self.step32
            return values
        wide = np.flatnonzero(np.abs(values) >= np.float32(_NARROW))
        values *= self.step32
        values[wide] = (codes[wide].astype(np.float64) * np.float64(self.step)).astype(np.float32)
        return values


def _within(values: NDArray[Any], bound: Any) -> bool:
    """Return whether every magnitude is at most `bound`; false for NaN, which `max` and `min` hand on."""
    return bool(values.max() <= bound and values.min() >= -bound)

"""The logarithmic quantizer: values to integer codes at a uniform step of their logarithm, for point-wise relative bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette import outliers
from briquette.bounds import Extent
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import FLOAT_DTYPES, Chunked, PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage

from .logarithm import LOG, exp2, log2

_CODES: Final = {"float32": "int32", "float64": "int64"}
_PARAMS: Final = ParamStruct(
    (
        ("inverse", "float64"),
        ("step", "float64"),
        ("center", "float64"),
        ("check", "float64"),
        ("limit", "float64"),
        ("low", "int64"),
        ("span", "int64"),
        ("base", "int64"),
        ("fill", "int64"),
    )
)
#: share of the step given up, so that the approximations of logarithm and power take hardly any value out of the bound
_SHRINK: Final = 1.0 - 2.0**-10
#: the check's own rounding errors, three of 2**-53, stay below this
_CAREFUL: Final = 1.0 - 2.0**-50
#: where zeros or both signs occur, octaves below the largest magnitude whose codes lie between those signs
_OCTAVES: Final = 12.0
#: the largest magnitude of a logarithm in steps: sums of six of them fit the code type, and conversions are exact
_LIMITS: Final = {4: 1 << 28, 8: 1 << 50}


@dataclass(frozen=True)
class LogQuantizer(Stage):
    """Quantize magnitudes to ``rint(log2|x| / step)``, signs kept, and keep aside, bit for bit, what would miss the bound.

    Serves the point-wise relative bound: ``|x - x'| <= eb * |x|`` for every finite x, exactly. Zeros come back as they
    were, their sign included. Output ``codes`` is a stream of int32 for float32 data and of int64 for float64 data; output
    ``outliers`` holds NaN, infinities and every value that its code does not bring back within the bound. Those without a
    code that fits take the fill code: that of the stream's first finite value.

    Notes
    -----
    Values that one code stands for lie in an interval whose ends are as ``(1 + eb) / (1 - eb)``, the widest there is; the
    value it decodes to is as far from both ends as the bound allows. Codes rise with the values: with the logarithm where
    the sign is one and there are no zeros, else with the sign times the logarithm above a floor, which is the smallest
    magnitude or, where zeros or both signs occur, 12 octaves below the largest one (smaller magnitudes take the codes beyond
    the largest, so that nothing is lost). After the logarithmic transform of Liang et al. (An efficient transformation
    scheme for lossy data compression with point-wise relative error bound, CLUSTER 2018), checked as in PFPL (Fallin et al.,
    2025); the arithmetic is in `briquette_quantize.logarithm`.
    """

    name: ClassVar[str] = "log-quantizer"
    outputs: ClassVar[tuple[str, ...]] = ("codes", "outliers")
    needs_bound: ClassVar[bool] = True
    bound_modes: ClassVar[tuple[str, ...]] = ("pwrel",)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the types of codes and outliers; raise `PipelineError` for anything but a float32 or float64 stream."""
        given = inputs["in"]
        if given.layout != "stream" or given.dtype not in _CODES:
            wide = "float32" if given.dtype in FLOAT_DTYPES else "float64"
            raise PipelineError(
                f"stage {self.name!r} takes float32 or float64 values, not {given}; convert the data with "
                f"x.astype(numpy.{wide}), or give a bound of mode abs or rel"
            )
        return {"codes": PortType(_CODES[given.dtype]), "outliers": PortType(given.dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk in which every value is kept aside."""
        return outliers.max_chunk_words(chunk, types[port].numpy.itemsize)

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve the step, the order of the codes and the fill code.

        Returns
        -------
        mapping
            ``eb`` (the bound as given), ``quant_step`` and ``center`` (in octaves), ``inverse_step``, ``low``, ``span``,
            ``base`` and ``fill_code`` (in steps).
        """
        if ctx.bound is None:
            raise PipelineError(f"stage {self.name!r} needs an error bound; give eb=")
        dtype, over = ctx.types["in"].numpy, ctx.extent()
        with np.errstate(all="ignore"):
            step, inverse, center = step_for(ctx.bound.eb, dtype)
            rule = _Rule(ctx.bound.eb, step, inverse, center, 0, 0, 0, 0, dtype, ctx.types["codes"].numpy)
            rule = rule.fitted_to(over)
            return {**rule.state(), "fill_code": rule.code_of(over.first) if over.any else 0}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Quantize ``in``, shape (count,), into ``codes`` and ``outliers``."""
        values: NDArray[Any] = np.asarray(inputs["in"])
        with np.errstate(all="ignore"):
            codes, kept = _Rule.from_state(scope.state, scope.types).quantize(values)
        scope.tally("outliers", int(np.count_nonzero(kept)))
        return {"codes": codes, "outliers": outliers.encode(kept, values, scope.chunk)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the values ``in`` back; raise `ArchiveError` if the outliers or the record cannot belong to them."""
        codes, aside = outputs["codes"], outputs["outliers"]
        if isinstance(codes, Chunked) or not isinstance(aside, Chunked):
            raise ArchiveError(f"stage {self.name!r} was not given a stream of codes and chunked outliers")
        with np.errstate(all="ignore"):
            values = _Rule.from_state(scope.state, scope.types).dequantize(codes)
        outliers.restore(aside, scope.chunk, values)
        return {"in": values}

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE; heads a group."""
        return FusionSpec(FusionAccess.ELEMENTWISE, 1)

    def fused_op(self) -> FusedOp:
        """The policy ``LogQuantizer``, which serves both harnesses."""
        strategies = ("warp-register", "chunk-cooperative")
        return FusedOp(strategies, "LogQuantizer", "briquette_quantize/cuda/log.cuh", _PARAMS, {"head": 1})

    def fused_aux_outputs(self) -> tuple[str, ...]:
        """The outliers leave the group beside the codes."""
        return ("outliers",)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the policy's parameters: the state, the bound as it is compared with, and the largest code."""
        rule = _Rule.from_state(state, types)
        return {
            "inverse": rule.inverse,
            "step": rule.step,
            "center": rule.center,
            "check": rule.check,
            "limit": rule.limit,
            "low": rule.low,
            "span": rule.span,
            "base": rule.base,
            "fill": rule.fill,
        }


def step_for(eb: float, dtype: np.dtype[Any]) -> tuple[float, float, float]:
    """Return step, inverse step and center of the codes' intervals, in octaves; all 0 where the bound is too small for them.

    Parameters
    ----------
    eb : float
        Point-wise relative bound, below 1; half a unit in the last place is left to narrowing.
    dtype : dtype
        The data's type.
    """
    margin = eb - (2.0**-24 if dtype.itemsize == 4 else 2.0**-53)
    if not margin > 0.0:
        return 0.0, 0.0, 0.0
    if margin < 2.0**-7:  # the series, because 1 + margin has lost much of it
        z = margin * margin
        step = LOG[0] * margin * (1.0 + z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0))))
        center = LOG[0] * -0.25 * z * (1.0 + z * (1.0 / 2.0 + z * (1.0 / 3.0)))
    else:
        above, below = (float(log2(np.array([1.0 + change]))[0]) for change in (margin, -margin))
        step, center = above - below, (above + below) * 0.5
    step *= _SHRINK
    return step, 1.0 / step, center


@dataclass(frozen=True)
class _Rule:
    """The arithmetic, which every target mirrors bit for bit.

    A magnitude's number of steps k becomes a rank: 0 for zeros, 1 + k - low where k >= low, else span + low - k, which is
    beyond all others. A code is the rank, or its complement (-1 - rank) where the sign is set, less the base.
    """

    eb: float
    step: float
    inverse: float
    center: float
    low: int
    span: int
    base: int
    fill: int
    dtype: np.dtype[Any]
    code: np.dtype[Any]

    @classmethod
    def from_state(cls, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> _Rule:
        """Take the resolved state; raise `ArchiveError` where it cannot be one (archives are not trusted)."""
        dtype, code = types["in"].numpy, types["codes"].numpy
        top = _LIMITS[dtype.itemsize]
        eb, step, inverse, center = (_number(state, name) for name in ("eb", "quant_step", "inverse_step", "center"))
        low, span, base = _integer(state, "low", top), _integer(state, "span", 3 * top), _integer(state, "base", 3 * top)
        most = 1 << 8 * code.itemsize - 1
        fill = _integer(state, "fill_code", most)
        if fill == most:
            raise ArchiveError(f"the run record's 'fill_code' is {fill}, not an {code} code")
        return cls(eb, step, inverse, center, low, span, base, fill, dtype, code)

    def state(self) -> dict[str, Scalar]:
        """Return what `from_state` takes."""
        return {
            "eb": self.eb,
            "quant_step": self.step,
            "inverse_step": self.inverse,
            "center": self.center,
            "low": self.low,
            "span": self.span,
            "base": self.base,
            "fill_code": self.fill,
        }

    @property
    def check(self) -> float:
        """The bound as it is compared with: the comparison's rounding errors then never favour a value."""
        return self.eb * _CAREFUL

    @property
    def limit(self) -> float:
        """The largest number of steps, below 0 where there is no step."""
        return float(_LIMITS[self.dtype.itemsize]) if self.step > 0.0 else -1.0

    def fitted_to(self, over: Extent) -> _Rule:
        """Return the rule whose codes rise with the values of this extent, and are small."""
        if not over.magnitude or not self.step:
            return self
        top, smallest = (self._steps(m) for m in (over.magnitude, min(abs(over.lo), abs(over.hi))))
        if over.lo > 0.0 or over.hi < 0.0:  # one sign, no zeros: count from the middle
            ordered = replace(self, low=smallest, span=top - smallest + 1)
            return replace(ordered, base=(ordered.code_of(over.lo) + ordered.code_of(over.hi)) // 2)
        octaves = math.ceil(_OCTAVES * self.inverse)
        low = max(top - octaves, -_LIMITS[self.dtype.itemsize])
        return replace(self, low=low, span=top - low + 1)

    def _steps(self, magnitude: float) -> int:
        top = float(_LIMITS[self.dtype.itemsize])
        if not magnitude:
            return 0
        return int(min(max(float(np.rint(log2(np.array([magnitude], self.dtype)) * self.inverse)[0]), -top), top))

    def code_of(self, value: float) -> int:
        """Return the code of one finite value, `fill` where it has none that fits."""
        return int(self.quantize(np.array([value], self.dtype))[0][0])

    def quantize(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the codes, and which values to keep aside."""
        size = np.abs(values)
        zero = size == 0
        q = np.rint(log2(size) * self.inverse)
        coded = (np.abs(q) <= self.limit) & np.isfinite(size)
        q[~coded] = 0.0
        k = q.astype(self.code)
        negative = np.signbit(values)
        back = self._value(k, negative)
        if self.dtype.itemsize == 4:
            error = np.abs(values.astype(np.float64) - back)
            within = error <= self.check * size.astype(np.float64)
        else:
            scale = np.where(size < 2.0**-500, 2.0**500, 1.0)  # so that no product is subnormal
            within = np.abs(values * scale - back * scale) <= self.check * (size * scale)
        low, span = self.code.type(self.low), self.code.type(self.span)
        rank = np.where(k >= low, k - low + self.code.type(1), low - k + span)
        rank[zero] = 0
        codes = np.where(negative, ~rank, rank) - self.code.type(self.base)
        codes[~(coded | zero)] = self.fill
        return codes, ~((coded & within) | zero)

    def dequantize(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the values the codes stand for."""
        code = codes + self.code.type(self.base)
        negative = code < 0
        rank = np.where(negative, ~code, code)
        low, span = self.code.type(self.low), self.code.type(self.span)
        values = self._value(np.where(rank <= span, rank - self.code.type(1) + low, low - (rank - span)), negative)
        zero = rank == 0
        values[zero] = np.copysign(self.dtype.type(0), np.where(negative[zero], -1.0, 1.0))
        return values

    def _value(self, k: NDArray[Any], negative: NDArray[np.bool_]) -> NDArray[Any]:
        size = exp2(k * self.step + self.center, self.dtype)
        return np.negative(size, out=size, where=negative)


def _number(state: Mapping[str, Scalar], name: str) -> float:
    number = state.get(name)
    if not isinstance(number, float) or not math.isfinite(number):
        raise ArchiveError(f"the run record's {name!r} is {number!r}, not a finite number")
    return number


def _integer(state: Mapping[str, Scalar], name: str, most: int) -> int:
    number = state.get(name)
    if isinstance(number, bool) or not isinstance(number, int) or not -most <= number <= most:
        raise ArchiveError(f"the run record's {name!r} is {number!r}, not an integer within {most} of 0")
    return number

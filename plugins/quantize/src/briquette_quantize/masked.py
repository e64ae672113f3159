"""Quantizers that set missing values apart: NaN, infinities and stated fill values take a mark in place of a code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from briquette import bounds, outliers
from briquette.declare import FusedOp
from briquette.errors import PipelineError, UsageError
from briquette.params import ParamStruct, Scalar
from briquette.ports import PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage

from .linear import LinearQuantizer, _resolved
from .linear import _rule as _linear_rule
from .log import LogQuantizer
from .log import _Rule as _LogRule

#: fill values a stage takes, at most
MOST: Final = 4
_HEADER: Final = "briquette_quantize/cuda/masked.cuh"


class _Quantizing(Protocol):
    def quantize(self, values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]: ...


def fill_text(values: Any, name: str) -> str:
    """Return fill values, given as a number or as text, as a stage holds them: numbers in their shortest form.

    Raises
    ------
    PipelineError
        For what is no number, and more than four of them.
    """
    words = values.replace(",", " ").split() if isinstance(values, str) else [values]
    try:
        numbers = [float("" if isinstance(word, bool) else word) for word in words]
    except (TypeError, ValueError, OverflowError):
        raise PipelineError(
            f"fill_values = {values!r} of stage {name!r} are no numbers; write them as text, as in '1e20 -9999'"
        ) from None
    texts = list(dict.fromkeys(repr(number) for number in numbers if math.isfinite(number)))  # others are missing anyway
    if len(texts) > MOST:
        raise PipelineError(f"fill_values of stage {name!r} are {len(texts)} values; it takes at most {MOST}")
    return " ".join(texts)


class _Masked(Stage):
    """What both have in common."""

    fill_values: str

    @property
    def _values(self) -> tuple[float, ...]:
        return tuple(map(float, self.fill_values.split()))

    def missing_values(self) -> tuple[float, ...]:
        """The fill values: they do not count in the range, and come back bit for bit."""
        return self._values

    def with_missing_values(self, values: Iterable[float]) -> Stage:
        """Return the stage that takes these for missing too."""
        text = " ".join([self.fill_values, *(repr(float(value)) for value in values)])
        try:
            changed: Any = self
            made: Stage = replace(changed, fill_values=text)
            return made
        except PipelineError as exc:
            raise UsageError(str(exc)) from exc

    def _rule(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> _Quantizing:
        raise NotImplementedError

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve what the quantizer does; the fill code is the mark, the lowest code."""
        state = super().prime_fused_forward_state(ctx)
        return {**state, "fill_code": -1 << 8 * ctx.types["codes"].numpy.itemsize - 1}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Quantize ``in``, shape (count,), into ``codes`` and ``outliers``."""
        values: NDArray[Any] = np.asarray(inputs["in"])
        missing = bounds.are_missing(values, self._values)
        with np.errstate(all="ignore"):
            codes, kept = self._rule(scope.state, scope.types).quantize(
                values if missing is None else np.where(missing, values.dtype.type(np.nan), values)
            )
        if kept is None:
            return {"codes": codes, "outliers": outliers.none_kept(values.size, scope.chunk)}
        scope.tally("outliers", int(np.count_nonzero(kept)))
        return {"codes": codes, "outliers": outliers.encode(kept, values, scope.chunk)}

    def _op(self, masked: str, filled: str, params: ParamStruct, geometry: Mapping[str, int]) -> FusedOp:
        """Return the policy `masked`, or, where there are fill values, `filled`, which takes their bits too."""
        if not self.fill_values:
            return FusedOp("warp-register", masked, _HEADER, params, geometry)
        fields = (*params.fields, *((f"missing{i}", "int64") for i in range(MOST)))
        return FusedOp("warp-register", filled, _HEADER, ParamStruct(fields), {"head": 1})

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the quantizer's parameters, and the bits of the fill values (those of a NaN where there are fewer)."""
        found = dict(super().fused_params(state, types))
        if self.fill_values:
            dtype = types["in"].numpy
            padded = [*self._values, *[math.nan] * MOST][:MOST]
            with np.errstate(over="ignore"):
                bits = np.array(padded).astype(dtype).view(f"i{dtype.itemsize}")
            found.update({f"missing{i}": int(value) for i, value in enumerate(bits)})
        return found


@dataclass(frozen=True)
class MaskedQuantizer(_Masked, LinearQuantizer):
    """The linear quantizer, which marks missing values for `forward-fill` to bridge.

    As `linear-quantizer`, but what has no code (NaN, infinities, fill values, magnitudes too large) takes the mark, the
    lowest code of the type. Behind it stands `forward-fill`; without, marks cost predictors much.

    Parameters
    ----------
    code_type : {"auto", "int16", "int32", "int64"}, optional
        As for `linear-quantizer`.
    fill_values : str or float, optional
        Up to four values, separated by spaces, that stand for missing ones; in the data's type, compared bit for bit. They
        come back bit for bit and do not count in the range.

    Raises
    ------
    PipelineError
        For another `code_type`, and fill values that are no numbers or too many.
    """

    fill_values: str = ""

    name: ClassVar[str] = "masked-quantizer"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fill_values", fill_text(self.fill_values, self.name))

    def stand_in(self, dtype: str) -> Stage:
        """Return this stage: integers have no code to spare for the mark."""
        return self

    def _rule(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> _Quantizing:
        return _linear_rule(*_resolved(state, types))

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``MaskedLinear``, or ``FilledLinear`` where there are fill values."""
        plain = LinearQuantizer.fused_op(self)
        assert plain.params is not None
        return self._op("MaskedLinear", "FilledLinear", plain.params, plain.geometry)


@dataclass(frozen=True)
class MaskedLogQuantizer(_Masked, LogQuantizer):
    """The log quantizer, for point-wise relative bounds, which marks missing values for `forward-fill` to bridge.

    As `log-quantizer`, but what has no code (NaN, infinities, fill values) takes the mark, the lowest code of the type.

    Parameters
    ----------
    fill_values : str or float, optional
        As for `masked-quantizer`.

    Raises
    ------
    PipelineError
        For fill values that are no numbers or too many.
    """

    fill_values: str = ""

    name: ClassVar[str] = "masked-log-quantizer"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fill_values", fill_text(self.fill_values, self.name))

    def _rule(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> _Quantizing:
        return _LogRule.from_state(state, types)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``MaskedLog``, or ``FilledLog`` where there are fill values."""
        plain = LogQuantizer.fused_op(self)
        assert plain.params is not None
        return self._op("MaskedLog", "FilledLog", plain.params, plain.geometry)

"""Alternatives: what a pipeline runs in place of a stage, by the mode of the bound and the dtype of the source.

A pipeline is written for one kind of run. Where another kind needs another stage (a point-wise relative bound another
quantizer, integers none at all), the pipeline says so: this module picks, and core never asks what the stages are called.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, get_args

import numpy as np

from ._names import shown
from .errors import PipelineError, UsageError
from .params import Scalar
from .ports import STREAM_DTYPES
from .record import Bound, BoundMode
from .stage import Stage

#: the mode of a run without a bound
NO_BOUND: Final = "none"
MODES: Final[tuple[str, ...]] = (*get_args(BoundMode), NO_BOUND)


@dataclass(frozen=True)
class Alternative:
    """What stands in for a stage in runs of some kind.

    Parameters
    ----------
    modes : tuple of str
        Modes of the bound in which it does (``"none"``: there is no bound); empty: in all.
    dtypes : tuple of str
        NumPy names of the source's dtypes for which it does; empty: for all.
    stage : str
        Name of the stage, or ``distribution:name``; empty: the stage is left out, which a chain allows, and
        elsewhere a stage that no edge begins at: its input becomes a segment of the archive.
    params : mapping
        Its parameters by name.

    Raises
    ------
    PipelineError
        For a mode or dtype there is not, and where neither is given.
    """

    modes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    stage: str = ""
    params: Mapping[str, Scalar] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("modes", "dtypes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "params", dict(self.params))
        for what, given, known in (("mode", self.modes, MODES), ("dtype", self.dtypes, sorted(STREAM_DTYPES))):
            for word in given:
                if word not in known:
                    raise PipelineError(f"{what} {word!r} of an alternative is unknown; use {', '.join(known)}")
        if not self.modes and not self.dtypes:
            raise PipelineError("an alternative that names neither modes nor dtypes would always apply; write it as the stage")
        if not self.stage and self.params:
            raise PipelineError("an alternative with parameters names no stage; add use=, or leave the parameters out")

    def applies(self, mode: str, dtype: str) -> bool:
        """Return whether it stands in, in runs of this mode on data of this dtype."""
        return (not self.modes or mode in self.modes) and (not self.dtypes or dtype in self.dtypes)


Alternatives = Mapping[str, Sequence[Alternative]]


def chosen(alternatives: Alternatives, mode: str, dtype: str) -> dict[str, Alternative]:
    """Return, for each node that has one, the first alternative that applies."""
    found = {node: next((a for a in each if a.applies(mode, dtype)), None) for node, each in alternatives.items()}
    return {node: alternative for node, alternative in found.items() if alternative is not None}


def mode_of(bound: Bound | None) -> str:
    """Return the mode by which alternatives are picked."""
    return NO_BOUND if bound is None else bound.mode


def check_served(nodes: Iterable[tuple[str, Stage]], mode: str, dtype: str, others: Sequence[str]) -> None:
    """Raise `UsageError` where a stage that resolves the bound does not serve its mode; `others` are presets that do."""
    for node, stage in nodes:
        if (stage.needs_bound or stage.takes_bound) and mode not in stage.bound_modes:
            serve = ", ".join(map(repr, stage.bound_modes)) or "none"
            none = f"; no installed preset serves {mode!r} for {dtype}"
            where = f"; presets that serve {mode!r}: {', '.join(others)}" if others else none
            raise UsageError(f"mode {mode!r} is not served by this pipeline: its stage {node!r} serves {serve}{where}")


def check_missing(dtype: str, others: Sequence[str]) -> NoReturn:
    """Raise `UsageError`: no stage takes missing values; `others` are presets of which one does."""
    where = f"use one of the presets that do: {', '.join(others)}" if others else f"no installed preset does for {dtype}"
    raise UsageError(f"no stage of this pipeline takes fill values (fill_value=); {where}")


def missing_of(fill_value: object) -> tuple[float, ...]:
    """Return the finite values of a fill value as callers give it: a number, several of them, or None."""
    if fill_value is None:
        return ()
    given: Any = fill_value if isinstance(fill_value, (list, tuple, np.ndarray)) else (fill_value,)
    values = []
    for each in given:
        try:
            if isinstance(each, (bool, str, bytes)):
                raise TypeError
            values.append(float(each))
        except (TypeError, ValueError, OverflowError):
            raise UsageError(f"fill_value={shown(each)} is not a number that a float holds; give one such as 1e20") from None
    return tuple(value for value in dict.fromkeys(values) if math.isfinite(value))

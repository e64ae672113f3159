"""The run record: what one run resolved (its state, archived) and what it reports (its results, not archived)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from ._names import shown
from .errors import ArchiveError, UsageError
from .params import Scalar

BoundMode = Literal["abs", "rel", "pwrel"]
_ALIASES = {"abs": "abs", "rel": "rel", "noa": "rel", "pwrel": "pwrel"}


@dataclass(frozen=True)
class Bound:
    """The error bound as the caller gave it, kept in float64.

    Parameters
    ----------
    eb : float
        Greater than zero and finite; below 1 for ``pwrel``.
    mode : {"abs", "rel", "pwrel"}
        ``rel`` (alias ``noa``) is relative to the range of the finite values, ``pwrel`` to each value's own magnitude.
    """

    eb: float
    mode: str = "abs"

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in _ALIASES:
            raise UsageError(f"mode {shown(self.mode)} is unknown; use one of {', '.join(_ALIASES)}")
        if isinstance(self.eb, bool) or getattr(getattr(self.eb, "dtype", None), "kind", "") == "b":
            raise UsageError(f"error bound {shown(self.eb)} is no number but a truth value; give one such as 1e-3")
        try:
            eb = float(self.eb)
        except OverflowError as exc:
            raise UsageError(f"error bound {shown(self.eb)} must be finite, and is beyond float64") from exc
        except Exception as exc:  # __float__ may be foreign code
            raise UsageError(f"error bound {shown(self.eb)} is not a number") from exc
        given: object = self.eb
        if isinstance(given, Integral) and int(eb) > int(given):
            eb = math.nextafter(eb, 0.0)  # an integer that float64 does not hold is never rounded up
        if not (math.isfinite(eb) and eb > 0.0):
            raise UsageError(f"error bound {shown(self.eb)} must be finite and greater than zero (in float64 it is {eb!r})")
        if self.mode == "pwrel" and eb >= 1.0:
            raise UsageError(
                f"error bound {shown(self.eb)} of mode 'pwrel' must be below 1: a value may change by that share of itself, "
                f"and 1 would let it lose its sign; give one such as 1e-3"
            )
        object.__setattr__(self, "eb", eb)
        object.__setattr__(self, "mode", _ALIASES[self.mode])


class RunRecord:
    """State and results of one run, keyed by node name.

    `state` holds scalars by name (``quant_step``, ``fill_code`` ...): written when priming, archived, and the
    only thing the inverse reads. `results` holds sizes, counts and timings for the caller. `primed` names the nodes whose
    state has been resolved.
    """

    def __init__(self, state: dict[str, dict[str, Scalar]] | None = None) -> None:
        self._state: dict[str, dict[str, Scalar]] = {} if state is None else state
        self._late: list[Callable[[dict[str, dict[str, Scalar]]], None]] = []
        self.results: dict[str, dict[str, Scalar]] = {}
        self.primed: set[str] = set()

    @property
    def state(self) -> dict[str, dict[str, Scalar]]:
        while self._late:
            self._late.pop(0)(self._state)
        return self._state

    def defer(self, fill: Callable[[dict[str, dict[str, Scalar]]], None]) -> None:
        """Have `fill` add to the state when somebody asks for it: a run on a device may never need it here."""
        self._late.append(fill)

    def scalar(self, node: str, name: str) -> Scalar:
        """Return one resolved value; an archive that lacks it is damaged."""
        try:
            return self.state[node][name]
        except KeyError:
            raise ArchiveError(f"the run record holds no {name!r} for stage {node!r}") from None

    def of(self, node: str) -> Mapping[str, Scalar]:
        return self.state.get(node, {})

    def tally(self, node: str, name: str, amount: int) -> None:
        """Add `amount` to a count in the results of `node`."""
        held = self.results.setdefault(node, {})
        held[name] = int(held.get(name) or 0) + amount

    def report(self, node: str, **values: Scalar) -> None:
        """Add to the results of `node`."""
        self.results.setdefault(node, {}).update(values)

"""Parts of an array: what a caller asks for, and the chunks that must be decoded to give it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ._names import shown
from .errors import UsageError
from .plan import Plan


@dataclass(frozen=True)
class Part:
    """A run of elements of the flattened array, and the shape it has for the caller.

    Attributes
    ----------
    begin, end : int
        First element, and the one after the last.
    shape : tuple of int
    """

    begin: int
    end: int
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.end - self.begin

    def chunks(self, plan: Plan, count: int) -> tuple[int, int]:
        """Return the half-open range of chunks to decode, of an array of `count` elements: all where `plan` has no other way."""
        if self.begin == self.end:
            return 0, 0
        if not plan.random_access:
            return 0, -(-count // plan.chunk)
        return self.begin // plan.chunk, -(-self.end // plan.chunk)


def select(shape: tuple[int, ...], region: Any, flat: Any) -> Part:
    """Return the part of an array of `shape` that the slice `region` (leading axis) or `flat` (single elements) asks for.

    Raises
    ------
    UsageError
        Where both are given, one is no slice of step 1, or a 0-d array has no axis to slice.
    """
    if region is not None and flat is not None:
        raise UsageError("region= slices the leading axis, flat= the flattened array: give one of them")
    count = math.prod(shape)
    if flat is not None:
        begin, end = _indices("flat", flat, count)
        return Part(begin, end, (end - begin,))
    if region is None:
        return Part(0, count, shape)
    if not shape:
        raise UsageError("a 0-d array has no axis for region=; leave it out, or use flat=slice(0, 1)")
    begin, end = _indices("region", region, shape[0])
    row = math.prod(shape[1:])
    return Part(begin * row, end * row, (end - begin, *shape[1:]))


def _indices(name: str, given: Any, length: int) -> tuple[int, int]:
    if not isinstance(given, slice):
        more = "; slice the other axes of the result" if isinstance(given, tuple) else ""
        raise UsageError(f"{name}={shown(given)} is no slice; write {name}=slice(start, stop){more}")
    try:
        begin, end, step = given.indices(length)
    except Exception as exc:  # __index__ may be foreign code
        raise UsageError(f"{name}={shown(given)} cannot slice anything: {exc}") from exc
    if step != 1:
        raise UsageError(
            f"{name}={shown(given)} has step {shown(step)}; only steps of 1 are decoded, so slice the result with the step"
        )
    return begin, max(begin, end)

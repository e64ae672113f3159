"""Runs that come again: one array after another of the same shape, under the same bound, in one group that stays on a device.

A call on a small array is all host time, so that looking up what the call before has found would be most of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .graph import NodePort
from .harness import Again, Direction, GroupProgram, GroupRun
from .record import Bound, RunRecord

if TYPE_CHECKING:
    from .executor import Executable

_KEPT: Final = 16


class Repeats:
    """What does the runs of one plan, by the array's shape and the bound; None where only the general way does."""

    def __init__(self) -> None:
        self._known: dict[Any, Again | None] = {}

    def forward(
        self, run: Executable, source: Any, bound: Bound | None, shape: tuple[int, ...]
    ) -> tuple[RunRecord, Mapping[NodePort, Any]] | None:
        """Return what `Executable.forward` does, of an array that stays on a device; None where that must do it."""
        key = shape if bound is None else (shape, bound.eb, bound.mode)
        try:
            again = self._known[key]
        except KeyError:
            if len(self._known) >= _KEPT:
                self._known.clear()
            again = self._known[key] = _again(run, source, bound, shape)
        if again is None:
            return None
        record, values = again(source)
        record.results[""] = {"peak_stream_bytes": int(source.nbytes)}
        return record, values

    def clear(self) -> None:
        self._known.clear()


def _again(run: Executable, source: Any, bound: Bound | None, shape: tuple[int, ...]) -> Again | None:
    program = only_program(run, "forward")
    if program is None or isinstance(source, np.ndarray):
        return None
    of = run.lengths.stretch(shape)
    coded = run.lengths.elements(run.graph.sinks[0], of)
    return program.again(source, GroupRun(RunRecord(), of.count, run.plan.chunk, 1, bound, stretch=of, coded=coded))


def only_program(run: Executable, direction: Direction) -> GroupProgram | None:
    """Return the program of a plan that is one group in that direction; None for any other plan."""
    step, *others = run.plan.direction(direction).steps
    return None if others or step.kind == "numpy" else run.program(step, direction)

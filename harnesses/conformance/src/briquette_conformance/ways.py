"""Where chains run: the targets of this machine, the lane emulator among them, and the executables of a chain on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from briquette import discovery
from briquette.executor import Executable
from briquette.graph import Graph, NodePort
from briquette.harness import Harness
from briquette.planner import make_plan
from briquette.ports import Chunked, PortValue
from briquette.record import Bound, RunRecord
from briquette.selection import REFERENCE, why_unavailable
from briquette.target import Target
from briquette_warp.emulation import EmulatedHarness, EmulatedTarget

from .data import Array, poisoned

#: the dialect whose sources the emulator runs, and that of the target which compiles it
_CUDA: Final = "cuda"
_CPP: Final = "c++"


@dataclass(frozen=True, eq=False)
class Place:
    """A target with the harnesses that compose for it; `target` None is the NumPy reference."""

    name: str
    target: Target | None
    harnesses: Mapping[str, Harness] = field(default_factory=dict)

    def executable(self, graph: Graph, dtype: str, fusion: str) -> Executable:
        plan = make_plan(graph, dtype, self.target, self.harnesses.values(), fusion)
        return Executable(plan, self.target, self.harnesses)


@dataclass(frozen=True)
class Places:
    """The places of this machine, and why others are missing."""

    reference: Place
    kernels: tuple[Place, ...]
    missing: Mapping[str, str]

    def __iter__(self) -> Iterator[Place]:
        return iter((self.reference, *self.kernels))

    def get(self, name: str) -> Place | None:
        return next((p for p in self if p.name == name), None)


def places() -> Places:
    """Return every target that can run here; where one compiles C++, the emulator of CUDA kernels comes with it."""
    registry = discovery.registry()
    harnesses = {h.name: h for h in registry.harnesses()}
    found: list[Place] = []
    missing: dict[str, str] = {}
    for target in registry.targets():
        why = why_unavailable(target)
        if why is not None:
            missing[target.name] = why
            continue
        found.append(Place(target.name, target, harnesses))
        if target.dialect == _CPP:
            emulated = EmulatedTarget(target)
            found.append(Place(emulated.name, emulated, {n: EmulatedHarness(h) for n, h in harnesses.items()}))
    if not found and not missing:
        missing["kernels"] = "no target is installed that compiles any; install briquette-target-host"
    if not harnesses:
        missing["fusion"] = "no harness is installed; install briquette-warp"
    return Places(Place(REFERENCE, None), tuple(found), missing)


@dataclass(frozen=True)
class Run:
    """What one compression gave."""

    record: RunRecord
    values: Mapping[NodePort, PortValue]

    def state(self) -> dict[str, dict[str, Any]]:
        return {node: dict(held) for node, held in self.record.state.items()}


def forward(run: Executable, x: Array, bound: Bound | None, threads: int = 1, shape: tuple[int, ...] | None = None) -> Run:
    """Compress the elements of an array of `shape` (default: 1-D); every value is brought to host memory."""
    record, values = run.forward(x, bound, threads, shape=shape)
    return Run(record, {port: run.to_host(value) for port, value in values.items()})


def inverse(run: Executable, made: Run, like: Array, threads: int = 1, shape: tuple[int, ...] | None = None) -> Array:
    """Decompress into a poisoned 1-D array, from the state and the values alone."""
    record = RunRecord(made.state())
    values = {port: _copy(value) for port, value in made.values.items()}
    out = poisoned(like.size, like.dtype)
    found: Array = run.inverse(values, record, run.lengths.stretch(shape or (like.size,)), threads, out)
    return found


def _copy(value: PortValue) -> PortValue:
    if isinstance(value, Chunked):
        return Chunked(_frozen(value.sizes), _frozen(value.words))
    return _frozen(value)


def _frozen(array: Array) -> Array:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy

"""A toy harness whose programs run, on NumPy arrays or in a toy memory that knows every array allocated in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from toys import ToyHarness, ToyTarget

from briquette.errors import ArchiveError
from briquette.executor import Executable
from briquette.graph import Graph
from briquette.harness import Direction, GroupProgram, GroupRun, Member
from briquette.planner import make_plan
from briquette.stage import Scope
from briquette.target import DeviceMemory, Target


@dataclass(frozen=True, eq=False)
class Far:
    """An array of the toy memory: no NumPy array."""

    array: NDArray[Any]

    size = property(lambda self: self.array.size)
    nbytes = property(lambda self: self.array.nbytes)
    dtype = property(lambda self: self.array.dtype)
    shape = property(lambda self: self.array.shape)


class ToyMemory(DeviceMemory):
    """Notes what is allocated: ``log`` holds the bytes of every array and of every reservation."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    def owns(self, x: Any) -> bool:
        return isinstance(x, Far)

    def view(self, x: Any, stream: Any = None) -> Any:
        return x

    def _made(self, what: str, array: NDArray[Any]) -> Far:
        self.log.append((what, array.nbytes))
        return Far(array)

    def empty(self, count: int, dtype: str, like: Any = None) -> Far:
        return self._made("empty", np.full(count, 77, dtype))

    def place(self, like: Any) -> int:
        return 0

    def reserve(self, nbytes: int, like: Any = None) -> Far:
        return self._made("reserve", np.full(nbytes, 77, np.uint8))

    def part(self, reserved: Far, offset: int, count: int, dtype: str, like: Any = None) -> Far:
        return Far(reserved.array[offset : offset + count * np.dtype(dtype).itemsize].view(dtype))

    def upload(self, array: NDArray[Any], out: Any = None) -> Far:
        if out is None:
            return self._made("upload", array.copy())
        out.array[:] = array
        return out

    def download(self, array: Far, out: NDArray[Any] | None = None) -> NDArray[Any]:
        if out is None:
            return array.array.copy()
        out[:] = array.array
        return out

    def copy(self, array: Far, out: Far) -> None:
        out.array[:] = array.array


class Program(GroupProgram):
    """Runs a chain's NumPy forms and writes where it is told to."""

    primes = True

    def __init__(self, chain: Sequence[Member], far: bool, fails: bool) -> None:
        self._chain, self._far, self._fails = chain, far, fails

    def _near(self, x: Any) -> Any:
        return x.array if isinstance(x, Far) else x

    def _scope(self, member: Member, run: GroupRun) -> Scope:
        return Scope({}, member.types, run.count, run.chunk)

    def forward(self, source: Any, run: GroupRun) -> dict[tuple[str, str], Any]:
        assert isinstance(source, Far) is self._far
        found: dict[tuple[str, str], Any] = {}
        value = self._near(source)
        for member in self._chain:
            made = dict(member.stage.forward({member.stage.inputs[0]: value}, self._scope(member, run)))
            value = made.pop(member.stage.outputs[0])
            found.update({(member.node, p): Far(np.asarray(v)) if self._far else v for p, v in made.items()})
        if self._fails:
            raise ArchiveError("a program that fails")
        assert run.out is not None
        self._near(run.out)[:] = value
        tail = self._chain[-1]
        return {**found, (tail.node, tail.stage.outputs[0]): run.out}

    def inverse(self, values: Mapping[tuple[str, str], Any], run: GroupRun) -> Any:
        tail = self._chain[-1]
        value = self._near(values[tail.node, tail.stage.outputs[0]])
        for member in reversed(self._chain):
            value = member.stage.inverse({member.stage.outputs[0]: value}, self._scope(member, run))[member.stage.inputs[0]]
        self._near(run.out)[:] = value
        return run.out


class RunningHarness(ToyHarness):
    """A `ToyHarness` with programs; those with a node that `failing` names raise."""

    failing: frozenset[str] = frozenset()

    def program(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> GroupProgram:
        return Program(chain, target.memory is not None, any(m.node in self.failing for m in chain))


def executable(graph: Graph, fusion: str, allocation: str, memory: DeviceMemory | None = None, limit: int = 9) -> Executable:
    """Return what runs `graph`, of int32, in groups of up to `limit` stages."""
    harness = RunningHarness(refuses=lambda nodes: "too long" if len(nodes) > limit else None)
    target = ToyTarget()
    target.memory = memory
    return Executable(make_plan(graph, "int32", target, [harness], fusion), target, {harness.name: harness}, allocation)

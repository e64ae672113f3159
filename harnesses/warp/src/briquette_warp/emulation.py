"""The lane emulator as a target: the CUDA kernels of any harness, run on the CPU by the executor like those of any target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.graph import NodePort
from briquette.harness import Direction, Geometry, GroupProgram, GroupRun, Harness, Member
from briquette.params import Scalar
from briquette.ports import PortValue
from briquette.target import KernelSource, Module, Target

from .emulated import EmulatedSession, HostArray, _on_host, emulated_source


class EmulatedTarget(Target):
    """Takes CUDA sources and runs them on the CPU, thread by thread; correct, slow, for checking.

    Parameters
    ----------
    host : Target
        Compiles C++: the host target, with a sanitizer's flags if its reports are wanted.
    """

    name = "emulated"
    dialect = "cuda"

    def __init__(self, host: Target) -> None:
        self._host = host

    def unavailable(self) -> str | None:
        return self._host.unavailable()

    def compile(self, source: KernelSource) -> Module:
        return self._host.compile(emulated_source(source))

    def map(self, work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
        return [work(item) for item in items]

    def session(self, array: Any = None) -> EmulatedSession:
        return EmulatedSession()

    def adapt(self, program: GroupProgram) -> GroupProgram:
        return _OnHost(program)


class EmulatedHarness(Harness):
    """A harness whose programs for CUDA take and give NumPy arrays.

    Parameters
    ----------
    harness : Harness
        Its programs keep to what a target's session offers.
    geometry : int, optional
        Which of the harness's geometries to run, counted from 0 and taken modulo their number; None: its own choice.
    """

    def __init__(self, harness: Harness, geometry: int | None = None) -> None:
        self._harness = harness
        self._geometry = geometry
        self.name = harness.name

    def refuse(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> str | None:
        return self._harness.refuse(chain, direction, target, chunk)

    def program(
        self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int, geometry: Geometry | None = None
    ) -> GroupProgram:
        if self._geometry is not None:
            every = self._harness.geometries(chain, direction, target, chunk)
            geometry = every[self._geometry % len(every)] if every else None
        return _OnHost(self._harness.program(chain, direction, target, chunk, geometry))


class _OnHost(GroupProgram):
    """A program for devices between NumPy arrays."""

    def __init__(self, program: GroupProgram) -> None:
        self._program = program
        self.primes = program.primes

    def resolved(self, source: NDArray[Any], run: GroupRun) -> list[tuple[str, Scalar, Scalar]]:
        """Return what `CudaProgram.resolved` does."""
        found: list[tuple[str, Scalar, Scalar]] = cast(Any, self._program).resolved(
            HostArray(source), replace(run, out=HostArray(run.out))
        )
        return found

    def forward(self, source: NDArray[Any], run: GroupRun) -> dict[NodePort, PortValue]:
        placed = HostArray(source if source.flags.aligned else source.copy())
        found = self._program.forward(placed, replace(run, out=None if run.out is None else HostArray(run.out)))
        return {port: _on_host(value) for port, value in found.items()}

    def inverse(self, values: Mapping[NodePort, PortValue], run: GroupRun) -> NDArray[Any]:
        if run.out is None:
            raise PipelineError("a group that is emulated needs the array that its result goes to")
        out: NDArray[Any] = run.out if run.out.flags.aligned else np.empty_like(run.out)
        self._program.inverse(values, replace(run, out=HostArray(out)))
        if out is not run.out:
            run.out[:] = out
        found: NDArray[Any] = run.out
        return found

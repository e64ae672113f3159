"""Launches that are made again and again at other addresses: put down once, and one graph where the addresses come back."""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.target import Module

from . import driver
from .ring import Ring, ring_of
from .target import Session

#: how often launches at the same addresses are made one by one: making a graph takes as long as some ten calls
_SINGLY: Final = 2
#: addresses whose launches are counted, and graphs that are kept
_COUNTED: Final = 256
_GRAPHS: Final = 32

#: what puts launches into a session, as they are at some addresses
Work = Callable[[Session, Sequence[int]], None]


class _Recorder(Session):
    """A session that puts down what its calls give the driver: the values that may be addresses, and all else."""

    __slots__ = ("_session", "calls", "values")

    def __init__(self, session: Session) -> None:
        super().__init__(session.device, session.stream)
        self._session = session
        self.calls: list[Callable[[array[int]], object]] = []
        self.values: list[list[int]] = []

    def launch(self, module: Module, entry: str, grid: int, shared: int, run: Sequence[int] | NDArray[np.uint64]) -> None:
        self.calls.append(partial(self._session.start, self.function(module, entry, shared), grid, shared))
        self.values.append([0, *map(int, run)])

    def zero(self, pointer: int, nbytes: int) -> None:
        session = self._session
        self.calls.append(lambda values: session.zero(values[0], nbytes))
        self.values.append([pointer])


class Prepared:
    """Launches at any addresses, and the copy to the host of what they leave behind; see `Session.prepared`.

    What a launch is given depends on each address by adding it, or not at all, which is found out by trying.
    """

    def __init__(self, session: Session, work: Work, addresses: Sequence[int], nbytes: int) -> None:
        self._session, self._work, self._nbytes = session, work, nbytes
        fixed = self._recorded([0] * len(addresses))
        moves: list[list[tuple[int, int]]] = [[] for _ in fixed.calls]
        for k in range(len(addresses)):
            moved = self._recorded([int(i == k) for i in range(len(addresses))])
            for call, (before, after) in enumerate(zip(fixed.values, moved.values, strict=True)):
                moves[call] += [(i, k) for i in range(len(before)) if after[i] != before[i]]
        self._calls = [(c, array("Q", v), m) for c, v, m in zip(fixed.calls, fixed.values, moves, strict=True)]
        if [self._at(v, m, addresses).tolist() for _, v, m in self._calls] != self._recorded(addresses).values:
            raise ValueError("what is launched depends on its addresses in another way than by adding them")
        self._times: dict[tuple[int, ...], int] = {tuple(addresses): 1}
        self._graphs: dict[tuple[int, ...], _Graph] = {}

    def _recorded(self, addresses: Sequence[int]) -> _Recorder:
        recorder = _Recorder(self._session)
        self._work(recorder, addresses)
        return recorder

    @staticmethod
    def _at(fixed: array[int], moves: list[tuple[int, int]], addresses: Sequence[int]) -> array[int]:
        values = fixed[:]
        for i, k in moves:
            values[i] += addresses[k]
        return values

    def __call__(self, *addresses: int) -> bytes:
        graph = self._graphs.get(addresses)
        if graph is not None:
            return graph.replay()
        for call, fixed, moves in self._calls:
            call(self._at(fixed, moves, addresses))
        found = self._session.peek(addresses[-1], self._nbytes)
        times = self._times[addresses] = self._times.get(addresses, 0) + 1
        if times == _SINGLY:
            self._keep(addresses)
        elif len(self._times) > _COUNTED:
            self._times.clear()
        return found

    def _keep(self, addresses: tuple[int, ...]) -> None:
        made = _Graph.of(self._session, self._work, addresses, self._nbytes)
        if made is not None:
            self._graphs[addresses] = made
            for oldest in list(self._graphs)[:-_GRAPHS]:
                self._graphs.pop(oldest, None)


class _Graph:
    """Launches and the copy as a graph, which copies to page-locked memory of its own."""

    def __init__(self, session: Session, graph: Any, slot: int, ring: Ring, nbytes: int) -> None:
        lib, order = driver.bindings(), driver.stream(session.stream)
        self._session, self._graph, self._slot, self._ring, self._nbytes = session, graph, slot, ring, nbytes
        self._launch, self._wait = partial(lib.cuGraphLaunch, graph, order), partial(lib.cuStreamSynchronize, order)

    @staticmethod
    def of(session: Session, work: Work, addresses: Sequence[int], nbytes: int) -> _Graph | None:
        """Return it; None where the driver makes none, or gives no page-locked memory."""
        ring = ring_of(session.device)
        slot = ring.take()
        if not slot:
            return None

        def all_of_it() -> None:
            work(own, addresses)
            own.copy_out(slot, addresses[-1], nbytes)

        try:
            own, lock = _recording(session.device)
            with lock:
                graph = own.capture(all_of_it)
        except driver.DeviceError:
            ring.give(slot)
            return None
        return _Graph(session, graph, slot, ring, nbytes)

    def replay(self) -> bytes:
        driver.check(self._launch())
        driver.check(self._wait())
        return ctypes.string_at(self._slot, self._nbytes)

    def __del__(self) -> None:
        try:
            with self._session.current():
                driver.bindings().cuGraphExecDestroy(self._graph)
            self._ring.give(self._slot)
        except Exception:  # the interpreter or the driver is shutting down
            return


@lru_cache(maxsize=64)
def _recording(device: int) -> tuple[Session, threading.Lock]:
    """Return the session in whose stream graphs of a device are recorded, one at a time; its context is current."""
    lib = driver.bindings()
    stream = int(driver.check(lib.cuStreamCreate(lib.CUstream_flags.CU_STREAM_NON_BLOCKING)))
    return Session(device, stream), threading.Lock()

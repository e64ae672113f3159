"""Values made once per process, however many threads ask at the same time."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Generic, TypeVar

V = TypeVar("V")


class OnceMap(Generic[V]):
    """A mapping whose missing values are made by the first thread that asks, while the others wait for it.

    A failure is raised in every thread that waited, and forgotten: the next call tries again. In a forked child
    the values are there; what other threads of the parent were making is not, and is made anew.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._reset()
        _MAPS.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, Future[V]] = {}

    def get(self, key: str, make: Callable[[], V]) -> V:
        """Return the value of `key`, calling `make` for it where there is none."""
        while True:
            with self._lock:
                if key in self._values:
                    return self._values[key]
                future = self._pending.get(key)
                if future is None:
                    mine: Future[V] = Future()
                    self._pending[key] = mine
                    break
            try:
                return future.result()
            except CancelledError:  # the thread that was making it was interrupted: take over
                continue
        try:
            value = make()
        except BaseException as exc:
            with self._lock:
                del self._pending[key]
            if isinstance(exc, Exception):
                mine.set_exception(exc)
            else:
                mine.cancel()
            raise
        with self._lock:
            self._values[key] = value
            del self._pending[key]
        mine.set_result(value)
        return value


_MAPS: Final[weakref.WeakSet[OnceMap[Any]]] = weakref.WeakSet()


def _reset_all() -> None:
    for each in list(_MAPS):
        each._reset()


if hasattr(os, "register_at_fork"):
    # Locks and unfinished work of the parent's other threads do not survive a fork.
    os.register_at_fork(after_in_child=_reset_all)

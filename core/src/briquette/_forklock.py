"""Locks that a forked child can use, whatever the parent's other threads held when it forked.

A fork copies locks but only the thread that forks: a lock that another thread held stays locked in the child for good.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, final


@final
class ForkLock:
    """A lock that is made anew in a forked child where another thread held it; use it as ``with lock.current:``.

    Parameters
    ----------
    reentrant : bool
        Whether the thread that holds it may take it again.
    lost : callable, optional
        Called in such a child: puts right what the other thread left half done.

    Attributes
    ----------
    current : lock
        Of `threading`. Whoever holds it in the parent releases that one, so look it up each time.
    """

    def __init__(self, reentrant: bool = False, lost: Callable[[], None] | None = None) -> None:
        self._make: Callable[[], Any] = threading.RLock if reentrant else threading.Lock
        self._lost = lost
        self.current: AbstractContextManager[Any] = self._make()
        _LOCKS.add(self)

    def _renew(self) -> None:
        lock: Any = self.current
        if lock.acquire(blocking=False):  # free, or reentrant and held by the thread that forked
            lock.release()
            return
        self.current = self._make()
        if self._lost is not None:
            self._lost()


_LOCKS: Final[weakref.WeakSet[ForkLock]] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_LOCKS):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)

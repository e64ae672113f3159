"""Work spread over threads that are shared by the whole process."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

#: the most threads a run may ask for
MAX_THREADS: Final = 1024

_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


class _Job:
    """One call of `map_ordered`: items are handed out in order to whichever threads have come to help."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self._work = work
        self._items = items
        self._results: list[Any] = [None] * len(items)
        self._next = 0
        self._active = 0
        self._failed: tuple[int, BaseException] | None = None
        self._state = threading.Condition()

    def help(self) -> None:
        """Work on items until none are left."""
        with self._state:
            self._active += 1
        try:
            while True:
                with self._state:
                    at = self._next
                    if at >= len(self._items):
                        return
                    self._next += 1
                try:
                    self._results[at] = self._work(self._items[at])
                except BaseException as exc:
                    self._fail(at, exc)
                    return
        finally:
            with self._state:
                self._active -= 1
                self._state.notify_all()

    def finish(self) -> list[Any]:
        """Return the results once nobody works on an item any more; raise the failure of the first item that failed."""
        with self._state:
            self._next = len(self._items)  # whoever starts to help from now on finds nothing to do
            self._state.wait_for(lambda: self._active == 0)
        if self._failed is not None:
            raise self._failed[1]
        return self._results

    def _fail(self, at: int, exc: BaseException) -> None:
        with self._state:
            self._next = len(self._items)
            if self._failed is None or at < self._failed[0]:
                self._failed = (at, exc)


def map_ordered(work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
    """Run `work` on every item on up to `threads` threads, the caller's among them; return the results in order.

    When items fail, no further ones are started and the exception of the first of them, in the order of `items`,
    is raised once all running ones have ended. The caller works as well and waits only for items that someone
    is working on, so calls may nest and may come from the pool's own threads.
    """
    helpers = min(threads, len(items)) - 1
    if helpers <= 0:
        return [work(item) for item in items]
    job = _Job(work, items)
    futures = []
    try:
        for _ in range(helpers):
            try:
                # In a copy of the caller's context, so that np.errstate and the like hold in the helpers too.
                futures.append(_shared_pool().submit(contextvars.copy_context().run, job.help))
            except RuntimeError:  # no more threads, or the interpreter is shutting down: do with what there is
                break
        job.help()
    finally:
        # Cancelled ones were never started; they would keep the arrays alive until a thread got to them.
        for future in futures:
            future.cancel()
        results = job.finish()
    return results


def _shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            # Threads are started when there is work and no idle one; the bound is only a bound.
            _pool = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="briquette-host")
        return _pool


def _forget_pool() -> None:
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # the parent's threads do not exist in the child

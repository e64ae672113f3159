"""Large copies between ordinary host memory and a device: through page-locked slots, by a few threads at once.

The driver copies pageable memory at a fifth of what the bus can do, because one thread of its own brings each page to a
buffer that the device reaches. Here several threads do: each has a lane of two page-locked slots, and fills or empties one
while the device copies the other. Pages of a fresh output are touched first by these threads, too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from . import driver

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

#: bytes up to which a copy takes the driver's own way
SMALL: Final = 1 << 16
#: bytes of a slot, and of a piece at least: a piece costs three calls of the driver
SLOT: Final = 2 << 20
_LEAST: Final = 1 << 18
#: threads of one copy, the caller's included
THREADS: Final = 4
#: lanes of a device at most; copies beyond it share what there are, or wait
_LANES: Final = 16

_PER_THREAD_STREAM: Final = 2

#: offset and bytes of what one call of the driver copies
Piece = tuple[int, int]


class Slot:
    """Page-locked memory, and the event after which the device is through with it."""

    __slots__ = ("address", "event")

    def __init__(self, address: int, event: Any) -> None:
        self.address, self.event = address, event


#: the two slots of a thread that copies
Lane = tuple[Slot, Slot]


def _lane(lib: Any) -> Lane:
    base = int(driver.check(lib.cuMemAllocHost(2 * SLOT)))
    first, second = (driver.check(lib.cuEventCreate(lib.CUevent_flags.CU_EVENT_DISABLE_TIMING)) for _ in range(2))
    return Slot(base, first), Slot(base + SLOT, second)


class Staging:
    """The lanes of one device, made when first needed and kept for the process's life; any thread may copy at any time."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._free: list[Lane] = []
        self._made, self._most = 0, _LANES
        self._changed = threading.Condition()

    def upload(self, pointer: int, host: int, nbytes: int, stream: int) -> bool:
        """Copy host memory to the device; it may be reused at once. False where there is no page-locked memory for it."""
        return self._copy(_fill, pointer, host, nbytes, stream)

    def download(self, pointer: int, host: int, nbytes: int, stream: int) -> bool:
        """Copy device memory to the host, and wait for it. False where there is no page-locked memory for it."""
        return self._copy(_empty, pointer, host, nbytes, stream)

    def _copy(self, work: Callable[..., None], pointer: int, host: int, nbytes: int, stream: int) -> bool:
        lane = self._take(wait=True)
        if lane is None:
            return False
        size = min(-(-nbytes // (8 * _LEAST)) * _LEAST, SLOT)
        pieces = deque((at, min(size, nbytes - at)) for at in range(0, nbytes, size))
        order = driver.stream(stream)
        # the per-thread default stream is another one in another thread
        threads = 1 if stream == _PER_THREAD_STREAM else min(THREADS, _cpus(), -(-nbytes // (4 * _LEAST)))
        helpers = [_pool().submit(self._help, work, pieces, pointer, host, order) for _ in range(threads - 1)]
        try:
            self._run(lane, work, pieces, pointer, host, order)
        finally:
            pieces.clear()  # after an error nobody starts another piece
            _settle(helpers)
        return True

    def _help(self, work: Callable[..., None], pieces: deque[Piece], pointer: int, host: int, order: Any) -> None:
        with driver.current(self._device):
            lane = self._take(wait=False)
            if lane is not None:
                self._run(lane, work, pieces, pointer, host, order)

    def _run(self, lane: Lane, work: Callable[..., None], pieces: deque[Piece], pointer: int, host: int, order: Any) -> None:
        lib = driver.bindings()
        try:
            work(lib, lane, pieces, pointer, host, order)
        except BaseException:
            lib.cuStreamSynchronize(order)  # a slot whose event was not recorded may be in use still
            raise
        finally:
            with self._changed:
                self._free.append(lane)
                self._changed.notify()

    def _take(self, wait: bool) -> Lane | None:
        """Return a lane; None where there is no page-locked memory at all, or none is free and `wait` is not set."""
        with self._changed:
            while True:
                if self._free:
                    return self._free.pop()
                if self._made < self._most:
                    try:
                        lane = _lane(driver.bindings())
                    except driver.DeviceError:
                        self._most = self._made  # what there is must do
                        continue
                    self._made += 1
                    return lane
                if not wait or not self._made:
                    return None
                self._changed.wait()


def _taken(pieces: deque[Piece]) -> Iterator[Piece]:
    """Yield the pieces that this thread takes from those that several take theirs from."""
    while True:
        try:
            piece = pieces.popleft()
        except IndexError:
            return
        yield piece


def _fill(lib: Any, lane: Lane, pieces: deque[Piece], pointer: int, host: int, order: Any) -> None:
    for turn, (at, nbytes) in enumerate(_taken(pieces)):
        slot = lane[turn % 2]
        driver.check(lib.cuEventSynchronize(slot.event))
        ctypes.memmove(slot.address, host + at, nbytes)
        driver.check(lib.cuMemcpyHtoDAsync(pointer + at, slot.address, nbytes, order))
        driver.check(lib.cuEventRecord(slot.event, order))


def _empty(lib: Any, lane: Lane, pieces: deque[Piece], pointer: int, host: int, order: Any) -> None:
    coming: deque[tuple[Slot, Piece]] = deque()

    def land() -> None:
        slot, (at, nbytes) = coming.popleft()
        driver.check(lib.cuEventSynchronize(slot.event))
        ctypes.memmove(host + at, slot.address, nbytes)

    for turn, (at, nbytes) in enumerate(_taken(pieces)):
        slot = lane[turn % 2]
        if len(coming) == 2:
            land()
        else:
            driver.check(lib.cuEventSynchronize(slot.event))  # an upload before this one may be reading it
        driver.check(lib.cuMemcpyDtoHAsync(slot.address, pointer + at, nbytes, order))
        driver.check(lib.cuEventRecord(slot.event, order))
        coming.append((slot, (at, nbytes)))
    while coming:
        land()


def _settle(helpers: list[Future[None]]) -> None:
    """Wait for the threads that help, and raise what one of them met; those that have not begun need not."""
    failed = [future.exception() for future in helpers if not future.cancel()]
    for error in failed:
        if error is not None:
            raise error


@lru_cache(maxsize=1)
def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and only large copies need it

    return ThreadPoolExecutor(2 * (THREADS - 1), thread_name_prefix="briquette-copy")


@lru_cache(maxsize=64)
def staging_of(device: int) -> Staging:
    """Return the staging memory of a device."""
    return Staging(device)


def is_page_locked(host: int, nbytes: int) -> bool:
    """Whether the device reaches this host memory itself, as it does what a framework has pinned; the context is current."""
    lib = driver.bindings()
    which = [lib.CUpointer_attribute.CU_POINTER_ATTRIBUTE_HOST_POINTER]
    for at in (host, host + nbytes - 1):
        status, known = lib.cuPointerGetAttributes(1, which, at)  # 0, and no error, for memory that CUDA does not know
        if int(status) or not known or not int(known[0]):
            return False
    return True

"""Small copies between host and device: page-locked slots, taken in turn, so that sending does not wait."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any, Final

from . import driver

_SLOT: Final = 4096
_SLOTS: Final = 256


class Ring:
    """Page-locked memory in slots of 4 KiB; before the first is taken again, the device has caught up.

    Where the driver gives no page-locked memory, copies take the way of ordinary memory, which waits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._spare: list[int] = []
        status, base = driver.bindings().cuMemAllocHost(_SLOT * _SLOTS)
        self._base = 0 if status else int(base)

    def fetch(self, pointer: int, nbytes: int, stream: int) -> bytes:
        """Return at most a slot of device memory, and wait for it."""
        lib, order, slot = driver.bindings(), driver.stream(stream), self.take()
        if not slot:
            return _fetched(lib, pointer, nbytes, order)
        driver.check(lib.cuMemcpyDtoHAsync(slot, pointer, nbytes, order))
        driver.check(lib.cuStreamSynchronize(order))
        found = ctypes.string_at(slot, nbytes)
        self.give(slot)
        return found

    def take(self) -> int:
        """Return the address of a slot of one's own: one of the ring could be taken again before it is read; 0: there is none."""
        try:
            return self._spare.pop()
        except IndexError:
            status, made = driver.bindings().cuMemAllocHost(_SLOT)
            return 0 if status else int(made)

    def give(self, slot: int) -> None:
        """Take back what `take` returned."""
        self._spare.append(slot)

    def _next_slot(self, lib: Any) -> int:
        if self._next == _SLOTS:
            driver.check(lib.cuCtxSynchronize())
            self._next = 0
        self._next += 1
        return self._base + _SLOT * (self._next - 1)

    def send(self, pointer: int, data: bytes, stream: int) -> None:
        """Copy `data` to device memory in the order of `stream`; the device's context is current."""
        lib, order = driver.bindings(), driver.stream(stream)
        if not self._base:
            held = ctypes.create_string_buffer(data, len(data))
            driver.check(lib.cuMemcpyHtoDAsync(pointer, ctypes.addressof(held), len(data), order))
            driver.check(lib.cuStreamSynchronize(order))
            return
        with self._lock:
            for at in range(0, len(data), _SLOT):
                slot = self._next_slot(lib)
                part = data[at : at + _SLOT]
                ctypes.memmove(slot, part, len(part))
                driver.check(lib.cuMemcpyHtoDAsync(pointer + at, slot, len(part), order))


def _fetched(lib: Any, pointer: int, nbytes: int, order: Any) -> bytes:
    held = ctypes.create_string_buffer(nbytes)
    driver.check(lib.cuMemcpyDtoHAsync(ctypes.addressof(held), pointer, nbytes, order))
    driver.check(lib.cuStreamSynchronize(order))
    return held.raw


@lru_cache(maxsize=64)
def ring_of(device: int) -> Ring:
    """Return the ring of a device, whose context is current; made once, kept for the process's life."""
    return Ring()

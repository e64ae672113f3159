"""Small host-to-device copies that do not wait: page-locked slots, taken in turn."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Final

from . import driver

_SLOT: Final = 4096
_SLOTS: Final = 256


class Ring:
    """Page-locked memory in slots of 4 KiB; before the first is taken again, the device has caught up."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._next = 0
        self._base = int(driver.check(driver.bindings().cuMemAllocHost(_SLOT * _SLOTS)))

    def send(self, pointer: int, data: bytes, stream: int) -> None:
        """Copy `data` to device memory in the order of `stream`; the device's context is current."""
        lib = driver.bindings()
        with self._lock:
            for at in range(0, len(data), _SLOT):
                if self._next == _SLOTS:
                    driver.check(lib.cuCtxSynchronize())
                    self._next = 0
                slot = self._base + _SLOT * self._next
                self._next += 1
                part = data[at : at + _SLOT]
                ctypes.memmove(slot, part, len(part))
                driver.check(lib.cuMemcpyHtoDAsync(pointer + at, slot, len(part), stream))


@lru_cache(maxsize=64)
def ring_of(device: int) -> Ring:
    """Return the ring of a device, whose context is current; made once, kept for the process's life."""
    return Ring(device)

"""Small host-to-device copies that do not wait: page-locked slots, taken in turn."""

from __future__ import annotations

import ctypes
import threading
from functools import lru_cache
from typing import Any, Final

from numpy.typing import NDArray

from . import driver

_SLOT: Final = 4096
_SLOTS: Final = 256


class Ring:
    """Page-locked memory in slots of 4 KiB; before the first is taken again, the device has caught up."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._next = 0
        self._spare: list[int] = []
        self._base = int(driver.check(driver.bindings().cuMemAllocHost(_SLOT * _SLOTS)))

    def fetch(self, pointer: int, out: NDArray[Any], stream: int) -> None:
        """Copy at most a slot of device memory into `out`, and wait for it."""
        lib = driver.bindings()
        try:
            slot = self._spare.pop()  # a slot of its own: one of the ring could be taken again before it is read
        except IndexError:
            slot = int(driver.check(lib.cuMemAllocHost(_SLOT)))
        driver.check(lib.cuMemcpyDtoHAsync(slot, pointer, out.nbytes, stream))
        driver.check(lib.cuStreamSynchronize(stream))
        ctypes.memmove(out.ctypes.data, slot, out.nbytes)
        self._spare.append(slot)

    def _take(self, lib: Any) -> int:
        if self._next == _SLOTS:
            driver.check(lib.cuCtxSynchronize())
            self._next = 0
        self._next += 1
        return self._base + _SLOT * (self._next - 1)

    def send(self, pointer: int, data: bytes, stream: int) -> None:
        """Copy `data` to device memory in the order of `stream`; the device's context is current."""
        lib = driver.bindings()
        with self._lock:
            for at in range(0, len(data), _SLOT):
                slot = self._take(lib)
                part = data[at : at + _SLOT]
                ctypes.memmove(slot, part, len(part))
                driver.check(lib.cuMemcpyHtoDAsync(pointer + at, slot, len(part), stream))


@lru_cache(maxsize=64)
def ring_of(device: int) -> Ring:
    """Return the ring of a device, whose context is current; made once, kept for the process's life."""
    return Ring(device)

"""Loaded machine code, and how it is called."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import DeclarationError, LookupFailed, UsageError
from briquette.target import Module

_U64: Final = np.dtype(np.uint64)
_FIRST_BYTE: Final[Callable[[Any], ctypes.c_char]] = ctypes.c_char.from_buffer


class HostModule(Module):
    """A shared library in this process. It is never unloaded: threads may be inside it.

    Parameters
    ----------
    name : str
        For messages.
    payload : bytes
        The shared library.
    entry_points : tuple of str

    Raises
    ------
    OSError
        The library cannot be loaded here.
    DeclarationError
        The library lacks one of the entry points.
    """

    def __init__(self, name: str, payload: bytes, entry_points: tuple[str, ...]) -> None:
        self.name = name
        library = load_library(payload)
        self._functions = {}
        for entry in entry_points:
            try:
                function = library[entry]
            except AttributeError as exc:
                raise DeclarationError(
                    f"source {name!r} declares the entry point {entry!r}, but its library exports no such function; "
                    f'define it as extern "C" __attribute__((visibility("default")))'
                ) from exc
            function.argtypes = [ctypes.c_void_p]
            function.restype = ctypes.c_int32
            self._functions[entry] = function

    def call(self, entry: str, slots: NDArray[np.uint64]) -> int:
        """Call `entry` with the address of `slots`: shape (n,), uint64, C-contiguous, writable; return its status."""
        function = self._functions.get(entry)
        if function is None:
            raise LookupFailed(
                f"source {self.name!r} has no entry point {entry!r}; it has: {', '.join(self._functions) or 'none'}"
            )
        if slots.dtype != _U64:
            raise UsageError(f"slots are {slots.dtype}; they must be uint64")
        try:
            # A third of the time of ndarray.ctypes, and it refuses read-only and strided arrays.
            address = ctypes.addressof(_FIRST_BYTE(slots))
        except (TypeError, ValueError) as exc:
            raise UsageError(f"slots must be a writable, contiguous, non-empty array: {exc}") from exc
        status: int = function(address)
        return status


def load_library(payload: bytes) -> ctypes.CDLL:
    """Load the shared library `payload` from a private file.

    Never from the cache's own file, which another machine on the same network disk may remove or replace
    while it is mapped here.
    """
    try:
        handle, path = tempfile.mkstemp(prefix="briquette-", suffix=".so")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(payload)
            return ctypes.CDLL(path)
        finally:
            with contextlib.suppress(OSError):  # the mapping stays; Windows refuses, and keeps the file
                os.unlink(path)
    except OSError:  # no temporary directory, or one that is full or mounted noexec
        if not hasattr(os, "memfd_create"):
            raise
        descriptor = os.memfd_create("briquette")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(payload)
            # Stays open on success: the loader remembers libraries by this path, so it must not be used again.
            return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        except OSError:
            os.close(descriptor)
            raise

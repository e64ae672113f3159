"""Memory of a `bytes` object that is written before anybody has it, so that a finished archive need not be copied into one."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from .layout import Bytes


class ByteRoom:
    """Room for `nbytes` bytes, the first of which become a `bytes` object; pages that are not written are never touched.

    CPython lets such an object be filled, and made shorter, before it is handed out; elsewhere there is a copy.

    Attributes
    ----------
    array : uint8 array, shape (nbytes,)
        To be written until `cut`; neither it nor a view of it may be used afterwards.
    """

    def __init__(self, nbytes: int) -> None:
        self._object = _Unshared(nbytes) if sys.implementation.name == "cpython" else None
        self.array: Bytes = np.empty(nbytes, np.uint8) if self._object is None else np.asarray(self._object)

    def cut(self, nbytes: int) -> bytes:
        """Return the first `nbytes` bytes."""
        return bytes(self.array.data[:nbytes]) if self._object is None else self._object.shortened(nbytes)


class _Unshared:
    """A new `bytes` object that only this one refers to."""

    def __init__(self, nbytes: int) -> None:
        api = ctypes.pythonapi
        make, contents = api.PyBytes_FromStringAndSize, api.PyBytes_AsString
        make.argtypes, make.restype = (ctypes.c_void_p, ctypes.c_ssize_t), ctypes.c_void_p
        contents.argtypes, contents.restype = (ctypes.c_void_p,), ctypes.c_void_p
        self._at: int | None = None
        self._at = make(None, nbytes)  # raises MemoryError where there is none
        data = contents(self._at)
        self.__array_interface__: dict[str, Any] = {"data": (data, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def shortened(self, nbytes: int) -> bytes:
        resize = ctypes.pythonapi._PyBytes_Resize
        resize.argtypes, resize.restype = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_ssize_t), ctypes.c_int
        held, self._at = ctypes.c_void_p(self._at), None
        resize(ctypes.byref(held), nbytes)  # raises MemoryError, and has freed the object then
        made: bytes = ctypes.cast(held, ctypes.py_object).value
        _let_go(held)
        return made

    def __del__(self) -> None:
        if self._at is not None:
            _let_go(ctypes.c_void_p(self._at))


def _let_go(held: ctypes.c_void_p) -> None:
    drop = ctypes.pythonapi.Py_DecRef
    drop.argtypes, drop.restype = (ctypes.c_void_p,), None
    drop(held)

"""Arrays in and out: what callers hand over becomes a flat native stream, and comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._load import describe
from .archive.layout import is_masked, writable_bytes
from .errors import OutOfMemory, UnsupportedInput, UsageError
from .ports import CARRIED_AS, STREAM_DTYPES, carried, numpy_dtype
from .target import DeviceMemory

#: DLPack's number for host memory
_DLPACK_CPU: Final = 1


class Source(NamedTuple):
    """An input array, ready to compress.

    Attributes
    ----------
    flat : array, shape (n,)
        The elements in C (logical) order and native byte order, truth values as uint8; a view of the caller's memory where
        that is possible, the target's memory included.
    dtype : str
        NumPy name without byte order.
    byteorder : {"<", ">"}
        Byte order of the caller's array.
    shape : tuple of int
    """

    flat: Any
    dtype: str
    byteorder: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(self.flat.nbytes)


def as_source(x: Any) -> Source:
    """Return `x` (NumPy, or anything with DLPack or ``__array__`` on the CPU) as a `Source`.

    Raises
    ------
    UnsupportedInput
        For masked and structured arrays, for dtypes nothing compresses, and where `x` fails to hand over its data; the
        message has the remedy.
    """
    array = _as_numpy(x)
    name = array.dtype.newbyteorder("=").name
    if carried(name) not in STREAM_DTYPES:
        raise UnsupportedInput(f"dtype {array.dtype} is not supported; {_remedy(array.dtype)}")
    order = ">" if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not _little()) else "<"
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    return Source(flat.view(CARRIED_AS[name]) if name in CARRIED_AS else flat, name, order, tuple(array.shape))


def ordered(dtype: str, byteorder: str) -> np.dtype[Any]:
    """Return the dtype of that name in the byte order ``"<"`` or ``">"``."""
    kind = numpy_dtype(dtype)
    return kind.newbyteorder(">") if byteorder == ">" else kind


def in_memory(x: Any, memory: DeviceMemory, stream: Any = None) -> Source:
    """Return a device array as a `Source`, without copying it.

    Raises
    ------
    UnsupportedInput
        For dtypes nothing compresses, and arrays that are not C-contiguous.
    """
    view = memory.view(x, stream)
    name = dtype_name(view.dtype)
    if name not in STREAM_DTYPES or not view.dtype.isnative:
        raise UnsupportedInput(f"dtype {view.dtype} is not supported; {_remedy(view.dtype)}")
    return Source(view, name, "<", tuple(view.shape))


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return a dtype's name without byte order, which NumPy puts together anew in every call: that takes longer than a launch."""
    return str(dtype.newbyteorder("=").name)


def _little() -> bool:
    return np.little_endian


def _as_numpy(x: Any) -> NDArray[Any]:
    array = x if isinstance(x, (np.ndarray, np.generic)) else _handed_over(x)
    if is_masked(array):
        raise UnsupportedInput("masked arrays are not supported: fill the mask first, x.filled(value)")
    return np.asarray(array)


def _handed_over(x: Any) -> NDArray[Any]:
    """Return a foreign array as one of NumPy; `x` may raise anything."""
    try:
        if hasattr(x, "__dlpack__"):
            return np.from_dlpack(x)
        if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
            return np.asanyarray(x)
    except MemoryError as exc:
        raise OutOfMemory(f"there is no memory for a {type(x).__name__} as an array of NumPy: {describe(exc)}") from exc
    except Exception as exc:
        raise UnsupportedInput(_no_exchange(x, exc)) from exc
    raise UnsupportedInput(f"a {type(x).__name__} is no array: pass numpy.asarray(x) with the dtype you mean")


def _no_exchange(x: Any, error: Exception) -> str:
    """Return why NumPy did not take `x`, and what to do."""
    if _is_elsewhere(x):
        return f"a {type(x).__name__} that is not in host memory needs a target for its device: {describe(error)}"
    return (
        f"a {type(x).__name__} cannot be handed to NumPy: {describe(error)}; "
        f"convert it to an array of a dtype NumPy has, such as float32"
    )


def _is_elsewhere(x: Any) -> bool:
    """Whether `x` says that it lies in a device's memory."""
    try:
        return int(x.__dlpack_device__()[0]) != _DLPACK_CPU
    except Exception:  # it does not say
        return False


def _remedy(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return f"compress its fields apart: {', '.join(dtype.names)}"
    if dtype.kind == "c":
        floats = {8: "numpy.float32", 16: "numpy.float64"}.get(dtype.itemsize)
        view = f"compress x.view({floats}), in which real and imaginary parts take turns, or " if floats else "compress "
        return f"{view}x.real and x.imag apart"
    if dtype.kind in "mM":
        return "compress x.view(numpy.int64), and keep its unit"
    if dtype.kind == "b":  # in a device's memory
        return "compress x.view(uint8)"
    other = dtype.kind == "V" and dtype.type is not np.void  # float8 and its like, which other libraries add
    if dtype.kind in "fO" or other:
        wide = dtype.kind == "O" or (dtype.kind == "f" and dtype.itemsize > 4)
        return f"convert it with x.astype(numpy.{'float64' if wide else 'float32'})"
    return f"supported are {', '.join(sorted(STREAM_DTYPES | CARRIED_AS.keys()))}"


def as_output(out: Any, dtype: np.dtype[Any], shape: tuple[int, ...], what: str = "archive holds") -> NDArray[Any]:
    """Return `out` as the flat array to decompress into, after checking that it fits.

    Raises
    ------
    UsageError
        Naming what the archive holds and what `out` is.
    """
    if not isinstance(out, np.ndarray):
        raise UsageError(f"out= must be a NumPy array, not {type(out).__name__}")
    if is_masked(out):
        raise UsageError("out= must not be a masked array, which would hide part of the data; give its data, out.data")
    if out.dtype != dtype or out.shape != shape:
        raise UsageError(f"out= is {out.dtype} of shape {out.shape}, the {what} {dtype} of shape {shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise UsageError("out= must be C-contiguous and writable")
    return np.asarray(out).reshape(-1)  # a matrix stays one of two dimensions


def as_writable_bytes(out: Any, needed: int, *inputs: Any) -> memoryview:
    """Return `out` as a byte view to write an archive into.

    Parameters
    ----------
    needed : int
        Bytes of the largest archive, which `out` must hold.
    *inputs : object
        What is read meanwhile; NumPy arrays among these must not overlap `out`.

    Raises
    ------
    UsageError
        Where `out` is no buffer to write bytes to, too small, or shares memory with an input.
    """
    try:
        view = writable_bytes(out)
    except UsageError as exc:
        raise UsageError(f"out= must be a C-contiguous, writable buffer of bytes (bytearray, uint8 array): {exc}") from exc
    if view.nbytes < needed:
        raise UsageError(f"out= holds {view.nbytes} bytes, the archive may need {needed}; see max_archive_bytes()")
    if any(isinstance(x, np.ndarray) and np.may_share_memory(x, view) for x in inputs):
        raise UsageError("out= overlaps the array to compress, which would be overwritten while it is read; give other memory")
    return view.data


@contextmanager
def memory_for(nbytes: int, what: str) -> Iterator[None]:
    """Raise `OutOfMemory`, naming `what` takes `nbytes` bytes, where memory runs out inside the block."""
    try:
        yield
    except OutOfMemory:
        raise
    except MemoryError as exc:
        raise OutOfMemory(f"out of memory: {what} takes {nbytes} bytes ({describe(exc)})") from exc

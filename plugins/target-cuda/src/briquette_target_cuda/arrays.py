"""Arrays in device memory: the caller's, seen through DLPack or the CUDA array interface, and our own."""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import Any, Final

import numpy as np

from briquette.errors import UnsupportedInput
from briquette.ports import numpy_dtype

from . import driver

#: the legacy default stream, which orders itself with every blocking stream
DEFAULT_STREAM = 1

#: bytes of an allocation that is kept for the next at most, and how many are kept: 16 MB of a device
_SPARE_BYTES: Final = 1 << 21
_SPARES: Final = 8

#: what arrays may hold, as the array interface and as PyTorch spell it; others take the general way
_KINDS: Final = frozenset({"<f2", "<f4", "<f8", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"})
_TENSORS: Final = {f"torch.{np.dtype(kind).name}": kind for kind in _KINDS}
_BFLOAT16: Final = "torch.bfloat16"


class Spares:
    """Small allocations in a device's default stream that were given back: the next of as many bytes costs no call.

    Work in one stream is in order, so that whoever takes one writes to it after whoever gave it back has read it. Only of
    the default stream, which is the same one for every thread and never ends.
    """

    def __init__(self) -> None:
        self._held: list[tuple[int, int]] = []  # bytes and address; each of its methods is one step for other threads

    def take(self, nbytes: int) -> int:
        """Return the address of one of `nbytes` bytes; 0 where there is none."""
        for held in tuple(self._held):
            if held[0] == nbytes:
                try:
                    self._held.remove(held)
                except ValueError:  # another thread took it
                    continue
                return held[1]
        return 0

    def keep(self, nbytes: int, pointer: int) -> int:
        """Take one back, and return the address of what is to be freed for it; 0 where nothing is."""
        if nbytes > _SPARE_BYTES:
            return pointer
        self._held.append((nbytes, pointer))
        try:
            return self._held.pop(0)[1] if len(self._held) > _SPARES else 0
        except IndexError:
            return 0


@lru_cache(maxsize=64)
def spares_of(device: int) -> Spares:
    """Return what is kept of a device's memory."""
    return Spares()


class Memory:
    """One allocation in the order of a stream; freed in that order when nothing refers to it any more.

    On a device without memory pools it is allocated at once, and its end waits for the stream.
    """

    __slots__ = ("device", "nbytes", "pointer", "stream")

    def __init__(self, nbytes: int, device: int, stream: int) -> None:
        self.pointer = spares_of(device).take(nbytes) if stream == DEFAULT_STREAM else 0
        self.device, self.stream, self.nbytes = device, stream, nbytes
        if self.pointer:
            return
        lib = driver.bindings()
        if driver.has_pools(device):
            self.pointer = int(driver.check(lib.cuMemAllocAsync(max(nbytes, 16), driver.stream(stream))))
        else:
            self.pointer = int(driver.check(lib.cuMemAlloc(max(nbytes, 16))))

    def __del__(self) -> None:
        pointer, self.pointer = self.pointer, 0
        try:
            if pointer and self.stream == DEFAULT_STREAM:
                pointer = spares_of(self.device).keep(self.nbytes, pointer)
            if pointer and driver.is_current(self.device):
                self._free(pointer)
            elif pointer:
                with driver.current(self.device):
                    self._free(pointer)
        except Exception:  # the interpreter or the driver is shutting down
            return

    def _free(self, pointer: int) -> None:
        lib, stream = driver.bindings(), driver.stream(self.stream)
        if driver.has_pools(self.device):
            if not lib.cuMemFreeAsync(pointer, stream)[0]:
                return
        elif not lib.cuStreamSynchronize(stream)[0]:
            lib.cuMemFree(pointer)
            return
        lib.cuCtxSynchronize()  # the stream is gone: whatever it still did ends first
        lib.cuMemFree(pointer)


class DeviceArray:
    """A C-contiguous array in device memory.

    Attributes
    ----------
    pointer : int
    dtype : numpy dtype, native
    shape : tuple of int
    device, stream : int
        Where it lies, and the stream in whose order it is written.
    owner : object
        Keeps the memory alive.
    """

    __slots__ = ("__weakref__", "device", "dtype", "nbytes", "owner", "pointer", "shape", "size", "stream")

    def __init__(self, pointer: int, dtype: Any, shape: tuple[int, ...], device: int, stream: int, owner: Any) -> None:
        self.pointer, self.dtype, self.shape = pointer, np.dtype(dtype), shape
        self.device, self.stream, self.owner = device, stream, owner
        self.size = size = shape[0] if len(shape) == 1 else math.prod(shape)
        self.nbytes = size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device  # kDLCUDA

    def __dlpack__(self, **options: Any) -> Any:
        """Export through cuda.core's view, which speaks DLPack for memory it did not allocate."""
        return _exporter(self).__dlpack__(**options)

    def __getitem__(self, part: slice) -> DeviceArray:
        """Return a run of elements of a 1-D array; it shares and keeps the memory."""
        begin, end, _ = part.indices(self.size)
        shape = (max(end - begin, 0),)
        return DeviceArray(self.pointer + begin * self.dtype.itemsize, self.dtype, shape, self.device, self.stream, self.owner)

    def shorten(self, count: int) -> None:
        """Be the first `count` elements of this 1-D array, which has as many."""
        self.shape, self.size, self.nbytes = (count,), count, count * self.dtype.itemsize

    def reshaped(self, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self.pointer, self.dtype, shape, self.device, self.stream, self.owner)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, shape={self.shape}, device={self.device})"


def _exporter(array: DeviceArray) -> Any:
    from cuda.core.utils import StridedMemoryView

    return StridedMemoryView.from_cuda_array_interface(array, stream_ptr=-1)


def is_device_array(x: Any) -> bool:
    """Whether `x` lies in the memory of a CUDA device, without touching CUDA."""
    if isinstance(x, (np.ndarray, np.generic)):
        return False
    where = getattr(x, "__dlpack_device__", None)
    if where is not None:
        return int(where()[0]) in (2, 13)  # kDLCUDA, kDLCUDAManaged
    return getattr(x, "__cuda_array_interface__", None) is not None


def device_of(x: Any) -> int:
    """Return the ordinal of the device that a device array lies on; 0 where its maker does not say."""
    where = getattr(x, "__dlpack_device__", None)
    return int(where()[1]) if where is not None else int(getattr(x, "device_id", 0))


def view_of(x: Any, stream: int) -> DeviceArray:
    """Return the caller's device array, ordered before what `stream` does next.

    Raises
    ------
    UnsupportedInput
        For arrays that are not C-contiguous, with the remedy.
    """
    if isinstance(x, DeviceArray):
        return x
    return _in_order(x, stream) or _viewed(x, stream)


def _in_order(x: Any, stream: int) -> DeviceArray | None:
    """Return an array whose maker works in `stream` itself, so that nothing has to be waited for; None for any other.

    That is the common case, and a tenth of what exchanging an array through DLPack costs.
    """
    torch = sys.modules.get("torch")
    if torch is not None and type(x) is torch.Tensor:
        return _tensor_in_order(x, stream, torch)
    where = getattr(x, "__dlpack_device__", None)
    if where is None:
        return None
    given = getattr(x, "__cuda_array_interface__", None)
    if not isinstance(given, dict) or given.get("mask") is not None or given.get("strides") is not None:
        return None
    if given.get("version", 0) < 3 or given.get("stream") != stream:  # None may mean that its maker does not know
        return None
    kind, device = given["typestr"], int(where()[1])
    if kind not in _KINDS or not driver.is_current(device):  # the stream is the one of the device that is current
        return None
    return DeviceArray(given["data"][0], kind, tuple(given["shape"]), device, stream, x)


def _tensor_in_order(x: Any, stream: int, torch: Any) -> DeviceArray | None:
    """The same for a tensor of PyTorch, whose array interface names no stream."""
    if x.layout is not torch.strided or not x.is_contiguous() or x.is_neg():
        return None
    name, device = str(x.dtype), x.get_device()
    kind = numpy_dtype("bfloat16") if name == _BFLOAT16 else _TENSORS.get(name)
    current = torch.cuda.current_stream(device).cuda_stream or DEFAULT_STREAM
    if kind is None or current != stream:
        return None
    return DeviceArray(x.data_ptr(), kind, tuple(x.shape), device, stream, x)


def _viewed(x: Any, stream: int) -> DeviceArray:
    """Return a device array by the exchange that cuda.core has for all of them; `stream` waits for the array's own."""
    from cuda.core.utils import StridedMemoryView

    detach = getattr(x, "detach", None)  # a tensor that requires a gradient exports no DLPack
    given = detach() if callable(detach) else x
    narrow = str(getattr(x, "dtype", "")) == _BFLOAT16  # which is exchanged by its bits
    if narrow:
        given = given.view(sys.modules["torch"].int16)
    with driver.current(device_of(x)):
        view = StridedMemoryView.from_any_interface(given, stream_ptr=stream)
    dtype = numpy_dtype("bfloat16") if narrow else view.dtype
    if dtype is None:
        raise UnsupportedInput(f"a {type(x).__name__} of a dtype NumPy does not know; convert it to float32 or float64")
    shape = tuple(int(n) for n in view.shape)
    if view.strides is not None and not _contiguous(shape, tuple(view.strides)):
        raise UnsupportedInput(f"a device array with strides {tuple(view.strides)} is not C-contiguous; copy it first")
    return DeviceArray(int(view.ptr), dtype, shape, int(view.device_id), stream, (x, view))


def _contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != expected:
            return False
        expected *= n
    return True

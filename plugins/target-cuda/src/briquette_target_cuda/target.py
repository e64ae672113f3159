"""`CudaTarget`: compiles for the device at hand, and gives harnesses sessions to launch their kernels in."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from briquette.cache import Cache, KeyPart
from briquette.target import DeviceMemory, KernelSource, Module, Target

from . import driver
from .arrays import DEFAULT_STREAM, DeviceArray, Memory, is_device_array, view_of
from .compiler import compiled, known_to
from .ring import ring_of
from .staging import SMALL, is_page_locked, staging_of

if TYPE_CHECKING:
    from .prepared import Work

#: 64-bit values for a call of the driver
Block = array


class CudaModule(Module):
    """Code of one source: compiled for a device's architecture and loaded into its context when first launched there."""

    def __init__(self, source: KernelSource, cache: Cache) -> None:
        self._source, self._cache = source, cache
        self._functions: dict[tuple[int, str, int], Any] = {}
        self._loaded: dict[int, Any] = {}
        self._code: dict[tuple[int, int], bytes] = {}
        self._lock = threading.Lock()

    def function(self, device: int, entry: str, shared: int) -> Any:
        """Return the handle of a kernel that may use `shared` bytes of dynamic shared memory; the context is current."""
        found = self._functions.get((device, entry, shared))
        if found is None:
            with self._lock:
                found = self._functions[device, entry, shared] = self._load(device, entry, shared)
        return found

    def _load(self, device: int, entry: str, shared: int) -> Any:
        lib = driver.bindings()
        if device not in self._loaded:
            capability = driver.capability(device)
            if capability not in self._code:
                self._code[capability] = compiled(self._source, capability, self._cache)
            self._loaded[device] = driver.check(lib.cuModuleLoadData(self._code[capability]))
        function = driver.check(lib.cuModuleGetFunction(self._loaded[device], entry.encode()))
        which = lib.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        driver.check(lib.cuFuncSetAttribute(function, which, shared))
        return function


class Session:
    """One run's place: a device and a stream. All work is in the stream's order; `finish` waits for it."""

    __slots__ = ("_lib", "_order", "device", "stream")

    def __init__(self, device: int, stream: int) -> None:
        self.device, self.stream = device, stream
        self._lib = driver.bindings()
        self._order = driver.stream(stream)

    def memory(self, nbytes: int) -> Memory:
        return Memory(nbytes, self.device, self.stream)

    def array(self, count: int, dtype: Any, memory: Memory | None = None, offset: int = 0) -> DeviceArray:
        """Return a 1-D array in new memory, or in `memory` from byte `offset` on."""
        held = memory if memory is not None else self.memory(count * np.dtype(dtype).itemsize)
        return DeviceArray(held.pointer + offset, dtype, (count,), self.device, self.stream, held)

    def zero(self, pointer: int, nbytes: int) -> None:
        driver.check(self._lib.cuMemsetD8Async(pointer, 0, nbytes, self._order))

    def serves(self, array: Any) -> bool:
        """Whether it is what `session_of` returns for a device array."""
        return bool(array.device == self.device and array.stream == self.stream)

    def function(self, module: Module, entry: str, shared: int) -> Any:
        """Return the handle of a kernel in this session's device."""
        assert isinstance(module, CudaModule)
        return module.function(self.device, entry, shared)

    def launch(self, module: Module, entry: str, grid: int, shared: int, run: Sequence[int] | NDArray[np.uint64]) -> None:
        """Launch a kernel of 256 lanes a block whose one parameter is the block of 64-bit slots `run`."""
        block = array("Q", (0, *(run.tolist() if isinstance(run, np.ndarray) else run)))
        self.start(self.function(module, entry, shared), grid, shared, block)

    def start(self, function: Any, grid: int, shared: int, block: Block) -> None:
        """Launch a kernel by its handle; the block of slots follows a word for the driver."""
        at = block.buffer_info()[0]
        block[0] = at + 8  # the driver wants the address of each parameter's address
        driver.check(self._lib.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, shared, self._order, at, 0))

    def prepared(self, work: Work, addresses: Sequence[int], nbytes: int) -> Callable[..., bytes]:
        """Return what does launches again: called with addresses, it waits and returns a few bytes of memory at the last one.

        Parameters
        ----------
        work : callable
            Puts launches into the session and at the addresses that it is given; called more than once.
        addresses : sequence of int
            Of the run before, which made these launches itself. The last one is memory that one call at a time uses.
        nbytes : int
            At most 4096.
        """
        from .prepared import Prepared  # only here: it needs this module

        return Prepared(self, work, addresses, nbytes)

    def read(self, pointer: int, out: NDArray[Any]) -> NDArray[Any]:
        """Copy device memory into a contiguous host array, and wait for it."""
        host, nbytes = out.ctypes.data, out.nbytes
        if self._stages(host, nbytes) and staging_of(self.device).download(pointer, host, nbytes, self.stream):
            return out
        if nbytes:
            driver.check(self._lib.cuMemcpyDtoHAsync(host, pointer, nbytes, self._order))
        self.finish()
        return out

    @staticmethod
    def _stages(host: int, nbytes: int) -> bool:
        return nbytes > SMALL and not is_page_locked(host, nbytes)

    def peek(self, pointer: int, nbytes: int) -> bytes:
        """Return a few bytes of device memory, at most 4096, and wait for them."""
        return ring_of(self.device).fetch(pointer, nbytes, self.stream)

    def write(self, pointer: int, data: NDArray[Any]) -> None:
        """Copy a contiguous host array into device memory in the stream's order; it may be reused when this returns."""
        host, nbytes = data.ctypes.data, data.nbytes
        if self._stages(host, nbytes) and staging_of(self.device).upload(pointer, host, nbytes, self.stream):
            return
        if nbytes:
            driver.check(self._lib.cuMemcpyHtoDAsync(pointer, host, nbytes, self._order))
            self.finish()

    def copy(self, pointer: int, source: int, nbytes: int) -> None:
        """Copy device memory to device memory, and wait for it: the caller's own streams know nothing of this one."""
        if nbytes:
            driver.check(self._lib.cuMemcpyDtoDAsync(pointer, source, nbytes, self._order))
            self.finish()

    def copy_out(self, host: int, pointer: int, nbytes: int) -> None:
        """Copy device memory to page-locked host memory, without waiting for it."""
        driver.check(self._lib.cuMemcpyDtoHAsync(host, pointer, nbytes, self._order))

    def send(self, pointer: int, data: bytes) -> None:
        """Copy a few bytes into device memory without waiting for the stream."""
        ring_of(self.device).send(pointer, data, self.stream)

    def capture(self, work: Callable[[], object]) -> Any:
        """Return what `work` puts into this session's own stream as an executable graph."""
        lib = self._lib
        mode = lib.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        driver.check(lib.cuStreamBeginCapture(self.stream, mode))
        try:
            work()
        finally:
            graph = driver.check(lib.cuStreamEndCapture(self.stream))
        try:
            return driver.check(lib.cuGraphInstantiate(graph, 0))
        finally:
            lib.cuGraphDestroy(graph)

    def replay(self, graph: Any, stream: Any = None) -> None:
        """Launch a captured graph into `stream` (default: the legacy default stream)."""
        driver.check(self._lib.cuGraphLaunch(graph, stream_handle(stream)))

    def finish_all(self) -> None:
        """Wait for everything the device's context does."""
        driver.check(self._lib.cuCtxSynchronize())

    def finish(self) -> None:
        driver.check(self._lib.cuStreamSynchronize(self._order))

    def multiprocessors(self) -> int:
        return driver.attribute(self.device, "MULTIPROCESSOR_COUNT")

    def current(self) -> Any:
        """Return the context manager in which this session's calls are made."""
        return driver.current(self.device)


class CudaMemory(DeviceMemory):
    """Device memory of every GPU; what has no place yet goes to device 0."""

    def owns(self, x: Any) -> bool:
        return is_device_array(x)

    def view(self, x: Any, stream: Any = None) -> DeviceArray:
        return view_of(x, stream_handle(stream))

    def empty(self, count: int, dtype: str, like: Any = None) -> DeviceArray:
        session = session_of(like)
        with session.current():
            return session.array(count, dtype)

    def place(self, like: Any) -> int:
        return session_of(like).device

    def reserve(self, nbytes: int, like: Any = None) -> DeviceArray:
        # in the default stream, which outlives the caller's; ready, and free of what used it, before another stream has it
        session = Session(session_of(like).device, DEFAULT_STREAM)
        with session.current():
            held = session.array(nbytes, "uint8")
            session.finish()
        return held

    def part(self, reserved: Any, offset: int, count: int, dtype: str, like: Any = None) -> DeviceArray:
        return session_of(like if like is not None else reserved).array(count, dtype, reserved.owner, offset)

    def upload(self, array: NDArray[Any], out: Any = None) -> DeviceArray:
        session = session_of(out)
        with session.current():
            placed: DeviceArray = out if out is not None else session.array(array.size, array.dtype.name)
            session.write(placed.pointer, np.ascontiguousarray(array))
            if out is not None:
                session.finish()  # the caller's own streams know nothing of this one
        return placed

    def download(self, array: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        session = session_of(array)
        host = np.empty(array.shape, array.dtype) if out is None else out
        with session.current():
            return session.read(array.pointer, host)

    def copy(self, array: Any, out: Any) -> None:
        session = session_of(out)
        with session.current():
            session.copy(out.pointer, array.pointer, array.nbytes)


def stream_handle(stream: Any) -> int:
    """Return the handle of a CuPy, PyTorch or cuda.core stream, or of an integer; None is the legacy default stream."""
    if stream is None:
        return DEFAULT_STREAM
    if isinstance(stream, int):
        return stream or DEFAULT_STREAM
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1]) or DEFAULT_STREAM
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name)) or DEFAULT_STREAM
    raise TypeError(f"a {type(stream).__name__} is no CUDA stream")


def session_of(array: Any) -> Session:
    """Return a session where a device array lies; device 0 and the default stream for None."""
    return Session(0, DEFAULT_STREAM) if array is None else Session(array.device, array.stream)


class CudaTarget(Target):
    """Runs plans on NVIDIA GPUs.

    Parameters
    ----------
    cache : Cache, optional
        Default: the one the environment describes.
    """

    name = "cuda"
    dialect = "cuda"
    priority = 0  # arrays in host memory stay there unless asked for otherwise: a copy over the bus costs more than coding
    memory = CudaMemory()

    def __init__(self, *, cache: Cache | None = None) -> None:
        self._cache = Cache.from_environment() if cache is None else cache
        self._modules: dict[tuple[str, tuple[str, ...]], CudaModule] = {}
        self._lock = threading.Lock()

    def unavailable(self) -> str | None:
        return driver.missing()

    def compile(self, source: KernelSource) -> CudaModule:
        """Return the module of `source`; it is compiled, or found in the cache, when first launched on a device."""
        with self._lock:
            return self._modules.setdefault((source.text, source.entry_points), CudaModule(source, self._cache))

    def map(self, work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
        return [work(item) for item in items]

    def session(self, array: Any = None) -> Session:
        """Return a session where `array` lies (default: device 0)."""
        return session_of(array)

    def private_session(self, array: Any) -> Session:
        """Return a session where `array` lies, in a stream of its own that waits for no other; kept for the process's life."""
        with driver.current(array.device):
            flags = driver.bindings().CUstream_flags.CU_STREAM_NON_BLOCKING
            return Session(array.device, int(driver.check(driver.bindings().cuStreamCreate(flags))))

    def identity(self) -> Mapping[str, KeyPart]:
        """Return the kinds of GPU there are, each by name and compute capability, and NVRTC's version."""
        if self.unavailable() is not None:
            return {}
        lib = driver.bindings()
        kinds = set()
        for i in range(driver.check(lib.cuDeviceGetCount())):
            name = driver.check(lib.cuDeviceGetName(128, driver.check(lib.cuDeviceGet(i)))).split(b"\0")[0].decode()
            kinds.add((name, *driver.capability(i)))
        return {"devices": sorted(kinds), "nvrtc": known_to(self._cache)[0]}

    def describe(self) -> Mapping[str, str]:
        why = self.unavailable()
        if why is not None:
            return {"unavailable": why}
        lib = driver.bindings()
        version = driver.check(lib.cuDriverGetVersion())
        names = []
        for i in range(driver.check(lib.cuDeviceGetCount())):
            name = driver.check(lib.cuDeviceGetName(128, driver.check(lib.cuDeviceGet(i))))
            names.append(name.split(b"\0")[0].decode())
        return {
            "devices": ", ".join(names),
            "driver": f"CUDA {version // 1000}.{version % 1000 // 10}",
            "memory": "in stream order" if all(map(driver.has_pools, range(len(names)))) else driver.NO_POOLS,
        }

"""A stand-in for ``cuda.bindings.driver`` that needs no GPU: device memory is host memory, and work is as late as CUDA allows.

What is put into a stream waits in a queue until something waits for it: a host buffer that is read too early holds the wrong
bytes here, every time. Memory is checked and poisoned when it is freed. Kernels are the NumPy reference of a pipeline, which read
and write the control block, tables and words where the host code said they lie.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

import briquette as bq
from briquette.bounds import extent
from briquette.ports import Chunked

CHUNK = 8192
CONTEXT = 0x1000


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_SUPPORTED = 801


OK = (Status.CUDA_SUCCESS,)


class Event:
    def __init__(self) -> None:
        self.queue: deque[Any] | None = None
        self.done = True


class Driver:
    """The calls the target makes. `log` counts them; `pools` and `page_locked` say what this device can."""

    def __init__(self, pools: bool = True, page_locked: int = 1 << 30) -> None:
        self.pools, self.page_locked, self.instantiates = pools, page_locked, True
        self.log: list[str] = []
        self.kernels: Kernels | None = None
        self.live: dict[int, Any] = {}
        self.pinned: dict[int, Any] = {}
        self.pending: dict[int, deque[tuple[Callable[[], None], Event | None]]] = {}
        self.recorded: dict[int, list[Callable[[], Any]]] = {}
        self.graphs: set[int] = set()
        self.lock = threading.RLock()
        self.local = threading.local()
        self.CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
        self.CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_HOST_POINTER=4)
        self.CUmemPool_attribute = SimpleNamespace(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
        self.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
        names = ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MULTIPROCESSOR_COUNT", "MEMORY_POOLS_SUPPORTED")
        self.CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
        self.CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in names})
        self.CUstream = self.cuuint64_t = int

    # -- devices and contexts ------------------------------------------------------------------------------

    def cuDeviceGet(self, device: int) -> Any:  # noqa: N802  the driver's own names, here and below
        return (*OK, device)

    def cuDeviceGetCount(self) -> Any:  # noqa: N802
        return (*OK, 1)

    def cuDeviceGetName(self, room: int, device: int) -> Any:  # noqa: N802
        return (*OK, b"stand-in\0")

    def cuDriverGetVersion(self) -> Any:  # noqa: N802
        return (*OK, 13000)

    def cuDeviceGetAttribute(self, which: str, device: int) -> Any:  # noqa: N802
        found = {"COMPUTE_CAPABILITY_MAJOR": 9, "MULTIPROCESSOR_COUNT": 2, "MEMORY_POOLS_SUPPORTED": int(self.pools)}
        return (*OK, found.get(which, 0))

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:  # noqa: N802
        return (*OK, CONTEXT)

    def cuDeviceGetDefaultMemPool(self, device: int) -> Any:  # noqa: N802
        return (*OK, 1) if self.pools else (Status.CUDA_ERROR_NOT_SUPPORTED, 0)

    def cuMemPoolSetAttribute(self, pool: int, which: int, value: int) -> Any:  # noqa: N802
        return OK

    @property
    def stack(self) -> list[int]:
        """The contexts of this thread, the current one last."""
        if not hasattr(self.local, "stack"):
            self.local.stack = []
        found: list[int] = self.local.stack
        return found

    def cuCtxGetCurrent(self) -> Any:  # noqa: N802
        return (*OK, self.stack[-1] if self.stack else 0)

    def cuCtxPushCurrent(self, context: int) -> Any:  # noqa: N802
        self.log.append("push")
        self.stack.append(context)
        return OK

    def cuCtxPopCurrent(self) -> Any:  # noqa: N802
        return (*OK, self.stack.pop())

    # -- memory --------------------------------------------------------------------------------------------

    def _new(self, nbytes: int) -> int:
        assert self.stack, "no context is current"
        held = ctypes.create_string_buffer(b"\xa5" * nbytes, nbytes)
        with self.lock:
            self.live[ctypes.addressof(held)] = held
        return ctypes.addressof(held)

    def _gone(self, pointer: int) -> None:
        with self.lock:
            held = self.live.pop(pointer)
            ctypes.memset(pointer, 0x5A, len(held))

    def check(self, pointer: int, nbytes: int) -> None:
        """Assert that a range of device memory lies in one allocation."""
        with self.lock:
            assert any(at <= pointer and pointer + nbytes <= at + len(held) for at, held in self.live.items()), hex(pointer)

    def cuMemAllocAsync(self, nbytes: int, stream: int) -> Any:  # noqa: N802
        self.log.append("alloc async")
        return (*OK, self._new(nbytes)) if self.pools else (Status.CUDA_ERROR_NOT_SUPPORTED, 0)

    def cuMemFreeAsync(self, pointer: int, stream: int) -> Any:  # noqa: N802
        assert self.pools, "there are no pools"
        self.put(stream, lambda: self._gone(pointer))
        return OK

    def cuMemAlloc(self, nbytes: int) -> Any:  # noqa: N802
        self.log.append("alloc")
        return (*OK, self._new(nbytes))

    def cuMemFree(self, pointer: int) -> Any:  # noqa: N802
        self.log.append("free")
        with self.lock:
            assert not any(self.pending.values()), "freed while a stream may use it"
        self._gone(pointer)
        return OK

    def cuMemAllocHost(self, nbytes: int) -> Any:  # noqa: N802
        with self.lock:
            if nbytes > self.page_locked:
                return (Status.CUDA_ERROR_OUT_OF_MEMORY, 0)
            self.page_locked -= nbytes
            held = ctypes.create_string_buffer(nbytes)
            self.pinned[ctypes.addressof(held)] = held
            return (*OK, ctypes.addressof(held))

    def is_pinned(self, pointer: int, nbytes: int = 1) -> bool:
        with self.lock:
            return any(at <= pointer and pointer + nbytes <= at + len(held) for at, held in self.pinned.items())

    def cuPointerGetAttributes(self, count: int, which: list[int], pointer: int) -> Any:  # noqa: N802
        return (*OK, [pointer if self.is_pinned(pointer) else 0])

    def cuMemcpyHtoDAsync(self, pointer: int, host: int, nbytes: int, stream: int) -> Any:  # noqa: N802
        self.check(pointer, nbytes)
        if self.is_pinned(host, nbytes):
            self.put(stream, lambda: ctypes.memmove(pointer, host, nbytes))
        else:  # the driver has a copy when it returns
            self.log.append("pageable")
            held = ctypes.string_at(host, nbytes)
            self.put(stream, lambda: ctypes.memmove(pointer, held, nbytes))
        return OK

    def cuMemcpyDtoHAsync(self, host: int, pointer: int, nbytes: int, stream: int) -> Any:  # noqa: N802
        self.check(pointer, nbytes)
        self.put(stream, lambda: ctypes.memmove(host, pointer, nbytes))
        if not self.is_pinned(host, nbytes):
            self.log.append("pageable")
            self.run(stream)
        return OK

    def cuMemcpyDtoDAsync(self, pointer: int, source: int, nbytes: int, stream: int) -> Any:  # noqa: N802
        self.put(stream, lambda: ctypes.memmove(pointer, source, nbytes))
        return OK

    def cuMemsetD8Async(self, pointer: int, value: int, nbytes: int, stream: int) -> Any:  # noqa: N802
        self.check(pointer, nbytes)
        self.put(stream, lambda: ctypes.memset(pointer, value, nbytes))
        return OK

    # -- order ---------------------------------------------------------------------------------------------

    def put(self, stream: int, work: Callable[[], Any], event: Event | None = None) -> None:
        with self.lock:
            if int(stream) in self.recorded:
                self.recorded[int(stream)].append(work)
            else:
                self.pending.setdefault(int(stream), deque()).append((work, event))

    def run(self, stream: int, until: Event | None = None) -> None:
        with self.lock:
            queue = self.pending.setdefault(int(stream), deque())
            while queue and not (until is not None and until.done):
                work, event = queue.popleft()
                work()
                if event is not None:
                    event.done = True

    def cuStreamSynchronize(self, stream: int) -> Any:  # noqa: N802
        self.log.append("sync")
        self.run(stream)
        return OK

    def cuCtxSynchronize(self) -> Any:  # noqa: N802
        for stream in list(self.pending):
            self.run(stream)
        return OK

    def cuEventCreate(self, flags: int) -> Any:  # noqa: N802
        return (*OK, Event())

    def cuEventRecord(self, event: Event, stream: int) -> Any:  # noqa: N802
        with self.lock:
            event.done, event.queue = False, stream  # type: ignore[assignment]
            self.put(stream, lambda: None, event)
        return OK

    def cuEventSynchronize(self, event: Event) -> Any:  # noqa: N802
        if not event.done:
            self.run(event.queue, event)  # type: ignore[arg-type]
        return OK

    # -- graphs --------------------------------------------------------------------------------------------

    def cuStreamCreate(self, flags: int) -> Any:  # noqa: N802
        return (*OK, 0x5000)

    def cuStreamBeginCapture(self, stream: int, mode: int) -> Any:  # noqa: N802
        assert stream not in (0, 1), "the default stream cannot be captured"
        self.recorded[stream] = []
        return OK

    def cuStreamEndCapture(self, stream: int) -> Any:  # noqa: N802
        return (*OK, self.recorded.pop(stream))

    def cuGraphInstantiate(self, graph: list[Callable[[], Any]], flags: int) -> Any:  # noqa: N802
        if not self.instantiates:
            return (Status.CUDA_ERROR_NOT_SUPPORTED, 0)
        self.graphs.add(id(graph))
        return (*OK, graph)

    def cuGraphLaunch(self, graph: list[Callable[[], Any]], stream: int) -> Any:  # noqa: N802
        assert id(graph) in self.graphs, "a graph that is gone"
        self.log.append("graph")
        for work in graph:
            self.put(stream, work)
        return OK

    def cuGraphExecDestroy(self, graph: list[Callable[[], Any]]) -> Any:  # noqa: N802
        self.graphs.remove(id(graph))
        return OK

    def cuGraphDestroy(self, graph: list[Callable[[], Any]]) -> Any:  # noqa: N802
        return OK

    # -- code ----------------------------------------------------------------------------------------------

    def cuModuleLoadData(self, code: bytes) -> Any:  # noqa: N802
        return (*OK, code)

    def cuModuleGetFunction(self, module: Any, entry: bytes) -> Any:  # noqa: N802
        return (*OK, entry.decode())

    def cuFuncSetAttribute(self, function: Any, which: int, value: int) -> Any:  # noqa: N802
        return OK

    def cuLaunchKernel(self, function: str, grid: int, *rest: Any) -> Any:  # noqa: N802
        stream, parameters = rest[6], rest[7]
        (at,) = struct.unpack("<Q", ctypes.string_at(parameters, 8))
        assert self.kernels is not None
        kernel = getattr(self.kernels, function.removeprefix("briquette_"))
        block = list(struct.unpack(f"<{kernel.slots}Q", ctypes.string_at(at, 8 * kernel.slots)))  # the driver copies it too
        if int(stream) not in self.recorded:
            self.log.append(function)
        self.put(stream, lambda: kernel(grid, *block))
        return OK

    def cuGetErrorString(self, status: Status) -> Any:  # noqa: N802
        return (*OK, b"as the stand-in was told")


def _slots(count: int) -> Callable[[Any], Any]:
    def marked(kernel: Any) -> Any:
        kernel.slots = count
        return kernel

    return marked


class Kernels:
    """The kernels of one fused pipeline, done by its NumPy reference."""

    def __init__(self, driver: Driver, pipeline: bq.Pipeline, dtype: str, bound: bq.Bound) -> None:
        self.driver, self.dtype, self.bound = driver, np.dtype(dtype), bound
        self.reference = pipeline.executable(dtype, "numpy")
        self.main, self.side = self.reference.graph.sinks
        self.record: Any = None
        self.values: dict[Any, Any] = {}

    def at(self, pointer: int, count: int, dtype: Any) -> Any:
        """Return device memory as an array, after checking that it is allocated."""
        nbytes = count * np.dtype(dtype).itemsize
        if not count:
            return np.empty(0, dtype)
        self.driver.check(pointer, nbytes)
        return np.frombuffer((ctypes.c_char * nbytes).from_address(pointer), dtype)

    def word(self, pointer: int, value: int) -> None:
        self.at(pointer, 1, np.uint64)[0] = value

    @_slots(14)
    def survey(self, grid: int, *slots: int) -> None:
        source, count, found, _, where, params, _, _, *_, control, cleared = slots
        assert grid == 1 or not cleared, "only a lone block may set words to zero"
        self.at(control, cleared, np.uint64)[:] = 0
        x = self.at(source, count, self.dtype).copy()
        seen = extent(x)
        assert not self.at(found, 1, np.uint64)[0], "the control block is not zero"
        self.at(where, 4, np.float64)[:] = seen.lo, seen.hi, seen.first, float(seen.any)
        self.at(params, 16, np.uint8)[:] = 1

    @_slots(12)
    def forward(self, grid: int, *slots: int) -> None:
        source, count, params, _, sizes, words, blocks, room, lookback, kept, warps, total = slots
        assert grid == -(-count // CHUNK)
        assert set(self.at(params, 16, np.uint8).tolist()) == {1}, "the parameters are not where the survey put them"
        x = self.at(source, count, self.dtype).copy()
        self.record, self.values = self.reference.forward(x, self.bound, 1)
        assert not self.at(lookback, grid + 1, np.uint64).any(), "the look-back is not zero"
        assert not self.at(warps, grid, np.uint32).any(), "the counts are not zero"
        self.at(kept, grid * 256, np.uint32)[:] = 0xFFFFFFFF
        self._store(self.values[self.main], sizes, words, blocks, room, total)
        self.word(total + 8, sum(int(r.get("outliers") or 0) for r in self.record.results.values()))

    @_slots(10)
    def aside(self, grid: int, *slots: int) -> None:
        _, _, kept, _, sizes, words, blocks, room, lookback, total = slots
        assert set(self.at(kept, grid * 256, np.uint32).tolist()) == {0xFFFFFFFF}
        assert not self.at(lookback, grid + 1, np.uint64).any()
        self._store(self.values[self.side], sizes, words, blocks, room, total)

    def _store(self, value: Chunked, sizes: int, words: int, blocks: int, room: int, total: int) -> None:
        assert value.words.size <= room
        self.at(sizes, value.sizes.size, np.uint32)[:] = value.sizes
        self.at(words, room, np.uint32)[: value.words.size] = value.words
        ends = np.cumsum(value.sizes, dtype=np.uint64)
        self.at(blocks, -(-value.sizes.size // 64), np.uint64)[:] = (ends - value.sizes)[::64]
        self.word(total, value.words.size)

    @_slots(14)
    def inverse(self, grid: int, *slots: int) -> None:
        out, n, begin, _, _, *tables = slots
        flag = tables.pop()
        assert not self.at(flag, 1, np.uint32)[0]
        main, side = self._load(tables[:4], begin, grid), Chunked(np.zeros(grid, np.uint32), np.empty(0, np.uint32))
        if tables[7]:
            side = self._load(tables[4:], begin, grid)
        count = n - begin * CHUNK
        self.at(out, count, self.dtype)[:] = self.reference.inverse(
            {self.main: main, self.side: side}, self.record, count, 1, np.empty(count, self.dtype)
        )

    def _load(self, tables: list[int], begin: int, chunks: int) -> Chunked:
        sizes, words, blocks, held = tables
        all_sizes = self.at(sizes, begin + chunks, np.uint32)
        whole = begin - begin % 64
        first = int(self.at(blocks, begin // 64 + 1, np.uint64)[-1]) + int(all_sizes[whole:begin].sum())
        mine = all_sizes[begin:].copy()
        end = first + int(mine.sum())
        assert end <= held
        return Chunked(mine, self.at(words, held, np.uint32)[first:end].copy())


def started(driver: Driver, dtype: str = "float32", bound: bq.Bound = bq.Bound(1e-3)) -> bq.Pipeline:  # noqa: B008
    """Return the preset `fast`, whose kernels the driver does from now on."""
    pipe = bq.Pipeline.from_preset("fast")
    driver.kernels = Kernels(driver, pipe, dtype, bound)
    return pipe

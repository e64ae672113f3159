"""The kernels of a group on a CPU, thread by thread: how policies written as plain CUDA run on a host target."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.graph import NodePort
from briquette.harness import Direction, GroupRun
from briquette.ports import Chunked, PortValue
from briquette.target import KernelSource, Module, Target

from .chain import Composition
from .cuda_program import CudaProgram
from .cuda_run import LANES

_MESSAGE: Final = 512
_ALIGNED: Final = 16  # of the widest access


def emulated_source(source: KernelSource) -> KernelSource:
    """Return a CUDA translation unit as C++: its kernels in the emulator, each behind a function for `Module.call`."""
    lines = ["#include <briquette_warp/cuda/emulator.cuh>", source.text]
    for entry in source.entry_points:
        lines.append(f'extern "C" __attribute__((visibility("default"))) int32_t emulate_{entry}(uint64_t *slots) {{')
        lines += [f"  return briquette::emulator::launch(slots, {entry});", "}"]
    names = tuple(f"emulate_{entry}" for entry in source.entry_points)
    return KernelSource(f"emulated-{source.name}", "\n".join([*lines, ""]), names)


@dataclass(eq=False)
class HostArray:
    """Host memory as programs for devices see memory: an address, a size, a dtype."""

    array: NDArray[Any]
    owner: HostMemory | None = None

    def __getitem__(self, part: slice) -> HostArray:
        return HostArray(self.array[part], self.owner)

    def shorten(self, count: int) -> None:
        """Be the first `count` elements."""
        self.array = self.array[:count]

    @property
    def pointer(self) -> int:
        return int(self.array.ctypes.data)

    @property
    def size(self) -> int:
        return int(self.array.size)

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype


class HostMemory(HostArray):
    """Bytes at an address that suits a device, holding anything at first."""

    def __init__(self, nbytes: int) -> None:
        held = np.full(nbytes, 0xCD, np.uint8)  # no more than that where it can be: a sanitizer sees its end
        if held.ctypes.data % _ALIGNED:
            held = np.full(nbytes + _ALIGNED, 0xCD, np.uint8)
            begin = -held.ctypes.data % _ALIGNED
            held = held[begin : begin + nbytes]
        super().__init__(held)


class EmulatedSession:
    """What a session of a GPU target offers to programs, in host memory and at once."""

    def current(self) -> nullcontext[None]:
        return nullcontext()

    def finish(self) -> None:
        """Nothing is ever under way."""

    def multiprocessors(self) -> int:
        return 1

    def memory(self, nbytes: int) -> HostMemory:
        return HostMemory(nbytes)

    def array(self, count: int, dtype: Any, memory: HostMemory | None = None, offset: int = 0) -> HostArray:
        nbytes = count * np.dtype(dtype).itemsize
        held = HostMemory(nbytes) if memory is None else memory
        return HostArray(held.array[offset : offset + nbytes].view(dtype), held)

    def zero(self, pointer: int, nbytes: int) -> None:
        ctypes.memset(pointer, 0, nbytes)

    def send(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(pointer, data, len(data))

    def write(self, pointer: int, data: NDArray[Any]) -> None:
        ctypes.memmove(pointer, data.ctypes.data, data.nbytes)

    def read(self, pointer: int, out: NDArray[Any]) -> NDArray[Any]:
        ctypes.memmove(out.ctypes.data, pointer, out.nbytes)
        return out

    def peek(self, pointer: int, nbytes: int) -> bytes:
        return ctypes.string_at(pointer, nbytes)

    def launch(self, module: Module, entry: str, grid: int, shared: int, run: Sequence[int] | NDArray[np.uint64]) -> None:
        """Run a kernel whose one parameter is `run`.

        Raises
        ------
        PipelineError
            Threads part at a collective, or wait for one another for ever; the message names the operation.
        """
        argument, message = np.array(run, np.uint64), np.zeros(_MESSAGE, np.uint8)
        slots = np.array([grid, LANES, shared, argument.ctypes.data, message.ctypes.data], np.uint64)
        if module.call(f"emulate_{entry}", slots):
            text = message.tobytes().split(b"\0")[0].decode(errors="replace")
            raise PipelineError(f"the emulator stopped {entry}: {text}; a policy of the group breaks the rules of CUDA")


class Emulation:
    """A host target as a device: it compiles CUDA sources for the emulator, and its memory is the host's."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def compile(self, source: KernelSource) -> Module:
        return self._target.compile(emulated_source(source))

    def session(self, array: Any = None) -> EmulatedSession:
        return EmulatedSession()


class EmulatedProgram(CudaProgram):
    """A group's CUDA kernels in the emulator, from NumPy arrays to NumPy arrays."""

    def __init__(self, parts: Composition, direction: Direction, target: Target) -> None:
        super().__init__(parts, direction, Emulation(target))

    def forward(self, source: NDArray[Any], run: GroupRun) -> dict[NodePort, PortValue]:
        placed = HostArray(source if source.flags.aligned else source.copy())
        found = super().forward(placed, replace(run, out=None if run.out is None else HostArray(run.out)))
        return {port: _on_host(value) for port, value in found.items()}

    def inverse(self, values: Mapping[NodePort, PortValue], run: GroupRun) -> NDArray[Any]:
        assert run.out is not None
        out: NDArray[Any] = run.out if run.out.flags.aligned else np.empty_like(run.out)
        super().inverse(values, replace(run, out=HostArray(out)))
        if out is not run.out:
            run.out[:] = out
        found: NDArray[Any] = run.out
        return found


def _on_host(value: Any) -> PortValue:
    if isinstance(value, Chunked):
        held: list[Any] = [value.sizes, value.words]
        return Chunked(*(a.array if isinstance(a, HostArray) else a for a in held))
    found: PortValue = value.array if isinstance(value, HostArray) else value
    return found

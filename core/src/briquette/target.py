"""The target contract: where a plan runs. Core knows `numpy`; others come from packs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import PipelineError

if TYPE_CHECKING:
    from .cache import KeyPart
    from .harness import GroupProgram


@dataclass(frozen=True)
class KernelSource:
    """One translation unit, composed by a harness.

    Attributes
    ----------
    name : str
        Short identifier for messages and dumped files.
    text : str
        The whole generated source; includes are of the form ``<package/dir/file.cuh>``.
    entry_points : tuple of str
        The ``extern "C"`` functions it defines.
    """

    name: str
    text: str
    entry_points: tuple[str, ...]


class Module:
    """Compiled code of one `KernelSource`; targets with kernels of their own extend it."""

    def call(self, entry: str, slots: NDArray[np.uint64]) -> int:
        """Call `entry` with a block of 64-bit slots (addresses and integers); return its status.

        The function's C signature is ``int32_t entry(uint64_t *slots)``; it may write results back into the
        block. The call releases the interpreter lock.
        """
        raise NotImplementedError("this target's code is launched, not called")


class DeviceMemory(ABC):
    """Memory that only a target's kernels reach.

    A device array has ``size``, ``nbytes``, ``dtype`` and ``shape``; a 1-D one can be sliced, without copying it.
    """

    @abstractmethod
    def owns(self, x: Any) -> bool:
        """Whether `x` is an array in this memory, the target's own or a framework's; cheap, and without CUDA where it is not."""

    @abstractmethod
    def view(self, x: Any, stream: Any = None) -> Any:
        """Return `x` as a device array without copying it, in the order of `stream` (default: the target's)."""

    @abstractmethod
    def empty(self, count: int, dtype: str, like: Any = None) -> Any:
        """Return an uninitialized 1-D device array, where `like` lies."""

    @abstractmethod
    def place(self, like: Any) -> Hashable:
        """Return where `like` lies, by default where arrays go; memory reserved for one array serves all of its place."""

    @abstractmethod
    def reserve(self, nbytes: int, like: Any = None) -> Any:
        """Return `nbytes` where `like` lies, as a uint8 device array that every stream may use, one after another."""

    @abstractmethod
    def part(self, reserved: Any, offset: int, count: int, dtype: str, like: Any = None) -> Any:
        """Return a part of reserved memory, from byte `offset` on, as a 1-D device array in the order of `like`'s stream."""

    @abstractmethod
    def upload(self, array: NDArray[Any], out: Any = None) -> Any:
        """Return a NumPy array's elements as a 1-D device array, in `out` where that is given."""

    @abstractmethod
    def download(self, array: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return a device array's elements, in `out` where that is given."""

    @abstractmethod
    def copy(self, array: Any, out: Any) -> None:
        """Copy a device array's elements into another one of its size and dtype."""


class Target(ABC):
    """An execution environment for compiled groups.

    Attributes
    ----------
    name : str
    dialect : str
        What its compiler takes: ``"c++"`` or ``"cuda"``. Harnesses emit source for the dialects they know.
    priority : int
        Among the targets that can run here, the default is the one with the highest.
    """

    name: str = ""
    dialect: str = ""
    priority: int = 0
    #: the target's own memory; None where it works on NumPy arrays
    memory: DeviceMemory | None = None

    @abstractmethod
    def unavailable(self) -> str | None:
        """Return why the target cannot run here, in one line, or None where it can."""

    @abstractmethod
    def compile(self, source: KernelSource) -> Module:
        """Return the compiled module, from memory, the disk cache, or the compiler."""

    @abstractmethod
    def map(self, work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
        """Run `work` on every item on up to `threads` threads and return the results in order."""

    def adapt(self, program: GroupProgram) -> GroupProgram:
        """Return the program that a stage brings (`Stage.staged_kernel`) as this target runs it; by default as it is."""
        return program

    def private_session(self, array: Any) -> Any:
        """Return where a captured run is recorded, for targets with graphs: a stream of its own beside `array`."""
        raise PipelineError(f"target {self.name!r} has no graphs to capture a run in")

    def threads(self, requested: int | None) -> int:
        """Return how many threads a run uses when the caller asked for `requested` (None: the default)."""
        return 1

    def identity(self) -> Mapping[str, KeyPart]:
        """Return what, beside the source, decides how fast code runs here: processor or device, compiler and its version.

        What was found fastest is remembered under it (`briquette.tuning`).
        """
        return dict(self.describe())

    def describe(self) -> Mapping[str, str]:
        """Return facts for `briquette targets` and bug reports: compiler, version, features."""
        return {}

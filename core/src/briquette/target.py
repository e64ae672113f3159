"""The target contract: where a plan runs. Core knows `numpy`; others come from packs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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


class Module(ABC):
    """Compiled code of one `KernelSource`."""

    @abstractmethod
    def call(self, entry: str, slots: NDArray[np.uint64]) -> int:
        """Call `entry` with a block of 64-bit slots (addresses and integers); return its status.

        The function's C signature is ``int32_t entry(uint64_t *slots)``; it may write results back into the
        block. The call releases the interpreter lock.
        """


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

    @abstractmethod
    def unavailable(self) -> str | None:
        """Return why the target cannot run here, in one line, or None where it can."""

    @abstractmethod
    def compile(self, source: KernelSource) -> Module:
        """Return the compiled module, from memory, the disk cache, or the compiler."""

    @abstractmethod
    def map(self, work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
        """Run `work` on every item on up to `threads` threads and return the results in order."""

    def threads(self, requested: int | None) -> int:
        """Return how many threads a run uses when the caller asked for `requested` (None: the default)."""
        return 1

    def describe(self) -> Mapping[str, str]:
        """Return facts for `briquette targets` and bug reports: compiler, version, features."""
        return {}

"""Small CUDA kernels in the emulator, compiled by the host target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from briquette import archived, request
from briquette.selection import choose_target
from briquette.target import KernelSource
from briquette_warp.emulated import emulated_source

#: what every kernel of these tests is given
ARGUMENT = "struct Run { unsigned *words; unsigned long long count; };"


class Emulated:
    """One kernel, ``void kernel(unsigned *words, unsigned long long count)``, given as its body."""

    def __init__(self, body: str, target: Any) -> None:
        begin = 'extern "C" __global__ void kernel(Run run) { unsigned *words = run.words; (void)words;'
        text = "\n".join([ARGUMENT, begin, body, "}", ""])
        self._module = target.compile(emulated_source(KernelSource("test-kernel", text, ("kernel",))))

    def run(self, count: int = 32, *, threads: int = 32, grid: int = 1, shared: int = 0) -> tuple[NDArray[np.uint32], str]:
        """Return `count` words, zero at the start, and the emulator's message."""
        words, message = np.zeros(count, np.uint32), np.zeros(512, np.uint8)
        argument = np.array([words.ctypes.data, count], np.uint64)
        slots = np.array([grid, threads, shared, argument.ctypes.data, message.ctypes.data], np.uint64)
        status = self._module.call("emulate_kernel", slots)
        text = message.tobytes().split(b"\0")[0].decode()
        assert status == (1 if text else 0)
        return words, text


def forget_pipelines() -> None:
    """Drop the pipelines that calls keep, with the programs compiled for them: what runs next is compiled anew."""
    archived._pipeline.cache_clear()
    request._preset.cache_clear()


def host_target() -> Any:
    """Return the host target; skips the test where it cannot run."""
    host = choose_target("host")
    assert host is not None
    reason = host.unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")
    return host

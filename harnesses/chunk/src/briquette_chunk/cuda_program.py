"""Runs a composed group on a GPU: the warp-register harness's program with this harness's kernels, a block a chunk."""

from __future__ import annotations

from typing import Any, Final

from briquette.harness import Direction
from briquette.ports import itemsize
from briquette.target import KernelSource
from briquette_warp.cuda_program import CudaProgram

from .chain import ChunkComposition
from .compose import cuda_source

#: blocks of 256 lanes that leave a lane 48 registers: kernels of 32-bit elements spill some ten, and are faster than with 64
_MOST_BLOCKS: Final = 5
#: elements of a chunk whose head keeps values aside: a bit of a word a lane each
MOST_KEPT: Final = 8192


def shared_bytes(parts: ChunkComposition) -> int:
    """Return the dynamic shared memory of a block: two buffers. The kernels ask for the coder's scratch themselves."""
    return 2 * parts.nbytes


def resident_blocks(parts: ChunkComposition) -> int:
    """Return how many blocks are to be resident on a multiprocessor, unless measuring has found better."""
    return _MOST_BLOCKS


def refuse_cuda(parts: ChunkComposition) -> str | None:
    """Return why a block cannot run the chain, or None."""
    if parts.side is not None and parts.chunk > MOST_KEPT:
        return f"on CUDA a head keeps values aside of chunks of at most {MOST_KEPT} elements, not {parts.chunk}"
    return None


class ChunkCudaProgram(CudaProgram):
    """A group compiled for one block a chunk, in one direction."""

    def __init__(self, parts: ChunkComposition, direction: Direction, target: Any, source: KernelSource | None = None) -> None:
        super().__init__(parts, direction, target, source or cuda_source(parts, direction, resident_blocks(parts)))
        self._shared = shared_bytes(parts)
        self._aside_shared = parts.chunk * itemsize(parts.source)

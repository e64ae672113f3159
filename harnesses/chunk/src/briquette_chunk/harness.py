"""`ChunkHarness`: what the chunk-cooperative strategy runs, and its programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from briquette.harness import Direction, Geometry, GroupProgram, Harness, Member
from briquette.target import Target

from .chain import ChunkComposition, refuse_chain
from .compose import cuda_source, host_source
from .cuda_program import ChunkCudaProgram, refuse_cuda, resident_blocks

_DIALECTS: Final = ("c++", "cuda")
#: ranges of chunks a thread codes, or checksum blocks it decodes at a time, among which measuring may choose on the host
_GRAINS: Final = (1, 2, 4)
#: and numbers of blocks that registers make room for, on a GPU
_BLOCKS: Final = range(2, 9)


class ChunkHarness(Harness):
    """Groups of the form [quantizer head], (ELEMENTWISE | REGION_LOCAL on chunks)*, [SEGMENT_CODEC on chunks].

    A chain of one runs as a kernel of its own, which is what staged execution is.
    """

    name = "chunk-cooperative"

    def refuse(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> str | None:
        if target.dialect not in _DIALECTS:
            return f"this harness composes no {target.dialect!r} source (target {target.name}); it knows {', '.join(_DIALECTS)}"
        why = refuse_chain(chain, direction, chunk)
        if why is None and target.dialect == "cuda":
            why = refuse_cuda(ChunkComposition(tuple(chain), chunk))
        return why

    def program(
        self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int, geometry: Geometry | None = None
    ) -> GroupProgram:
        asked = dict(geometry.settings) if geometry is not None else {}
        source = geometry.source if geometry is not None else None
        parts = ChunkComposition(tuple(chain), chunk)
        if target.dialect == "cuda":
            return ChunkCudaProgram(parts, direction, target, source)
        from briquette_warp.host_program import HostProgram  # runs on a GPU need none of it

        module = target.compile(source or host_source(parts, direction))
        return HostProgram(parts, direction, module, target, asked.get("grain", 1))

    def geometries(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> Sequence[Geometry]:
        parts = ChunkComposition(tuple(chain), chunk)
        if target.dialect == "cuda":
            own = resident_blocks(parts)
            counts = sorted(_BLOCKS, key=lambda n: (n != own, n))
            return [Geometry((("blocks", n),), cuda_source(parts, direction, n)) for n in counts]
        source = host_source(parts, direction)
        return [Geometry((("grain", grain),), source) for grain in _GRAINS]

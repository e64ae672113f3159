"""`WarpHarness`: what the warp-register strategy runs, and its programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from briquette.harness import Direction, GroupProgram, Harness, Member
from briquette.target import Target

from .chain import Composition, refuse_chain
from .compose import host_source
from .cuda_program import CudaProgram, refuse_geometry
from .host_program import HostProgram

_DIALECTS: Final = ("c++", "cuda")


class WarpHarness(Harness):
    """Groups of the form [quantizer head], (ELEMENTWISE | REGION_LOCAL)*, [TILE_SELECTOR, ELEMENTWISE*], [SEGMENT_CODEC].

    A chain of one runs as a kernel of its own, which is what staged execution is.
    """

    name = "warp-register"

    def refuse(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> str | None:
        if target.dialect not in _DIALECTS:
            return f"this harness composes no {target.dialect!r} source (target {target.name}); it knows {', '.join(_DIALECTS)}"
        why = refuse_chain(chain, chunk, direction)
        if why is None and target.dialect == "cuda":
            why = refuse_geometry(Composition(tuple(chain), chunk))
        return why

    def program(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> GroupProgram:
        parts = Composition(tuple(chain), chunk)
        if target.dialect == "cuda":
            return CudaProgram(parts, direction, target)
        return HostProgram(parts, direction, target.compile(host_source(parts, direction)), target)

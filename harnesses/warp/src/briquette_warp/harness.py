"""`WarpHarness`: what the warp-register strategy runs, and its programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from briquette.harness import Direction, Geometry, GroupProgram, Harness, Member
from briquette.target import Target

from .chain import Composition, refuse_chain
from .compose import host_source
from .cuda_program import CudaProgram, refuse_geometry
from .element import in_element_form
from .geometries import cuda_geometries, host_geometries

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
        if why is None and (target.dialect == "cuda" or any(map(in_element_form, chain))):
            why = refuse_geometry(Composition(tuple(chain), chunk))
        return why

    def program(
        self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int, geometry: Geometry | None = None
    ) -> GroupProgram:
        asked = dict(geometry.settings) if geometry is not None else {}
        source = geometry.source if geometry is not None else None
        parts = Composition(tuple(chain), chunk, asked.get("lane"))
        if target.dialect == "cuda":
            return CudaProgram(parts, direction, target, source)
        # imported here, because runs on a GPU need neither
        if any(map(in_element_form, chain)):
            from .emulated import EmulatedProgram

            return EmulatedProgram(parts, direction, target)
        from .host_program import HostProgram

        module = target.compile(source or host_source(parts, direction))
        return HostProgram(parts, direction, module, target, asked.get("grain", 1))

    def geometries(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> Sequence[Geometry]:
        parts = Composition(tuple(chain), chunk)
        if any(map(in_element_form, chain)):
            return ()  # its kernels have one
        return cuda_geometries(parts, direction) if target.dialect == "cuda" else host_geometries(parts, direction)

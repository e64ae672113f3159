"""A chain as this harness reads it: optional head, ELEMENTWISE ops and ops on whole chunks, optional coder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from briquette.declare import FusionAccess
from briquette.harness import Direction, Member
from briquette.ports import FLOAT_DTYPES, itemsize
from briquette_warp.chain import C_NAMES, Composition, is_coder, is_head, refuse_any_head, refuse_words

#: bytes of a chunk
SIZES: Final = (4096, 8192, 16384)
#: what `FusedOp.geometry` may say here; `per_type`: the policy is a template of the unsigned type as wide as an element
GEOMETRY: Final = frozenset({"head", "resolves", "per_type"})


def code_type(dtype: str) -> str:
    """Return the C type in which elements that no head reads lie in a chunk."""
    if dtype in C_NAMES and dtype not in FLOAT_DTYPES:
        return C_NAMES[dtype]
    return f"uint{8 * itemsize(dtype)}_t"


def on_chunks(member: Member) -> bool:
    """Whether the member works on whole chunks, as bytes."""
    return member.spec.access in (FusionAccess.REGION_LOCAL, FusionAccess.SEGMENT_CODEC)


def refuse_chain(chain: Sequence[Member], direction: Direction, chunk: int) -> str | None:
    """Return why `chain` cannot run, or None."""
    for position, member in enumerate(chain):
        why = _refuse_member(member, position, len(chain))
        if why is not None:
            return f"{member.node}: {why}"
    first = chain[0]
    size = chunk * itemsize((first.main_out if is_head(first) else first.main_in).dtype)
    for member in chain:
        if on_chunks(member) and member.spec.span != size:
            return f"{member.node}: it works on chunks of {member.spec.span} bytes, the archive's have {size}"
    if size not in SIZES:
        return f"an archive chunk of {chunk} elements has {size} bytes; this harness works on {', '.join(map(str, SIZES))}"
    return None


def _refuse_member(member: Member, position: int, size: int) -> str | None:
    why = refuse_words(member.op.geometry, GEOMETRY)
    if why is not None:
        return why
    if len(member.stage.inputs) != 1:
        return f"it reads {len(member.stage.inputs)} inputs; this harness runs chains of one path"
    if on_chunks(member):
        if member.spec.unit != "bytes":
            return f"its span is counted in {member.spec.unit}; this harness runs ops on chunks of bytes"
    elif member.spec.access is not FusionAccess.ELEMENTWISE:
        return f"this harness runs no {member.spec.access.name}"
    if member.op.dtypes and member.main_in.dtype not in member.op.dtypes:
        return f"its policy works on {', '.join(member.op.dtypes)}, not {member.main_in.dtype}"
    if is_head(member):
        return _refuse_head(member, position)
    if member.main_in.dtype in FLOAT_DTYPES and not on_chunks(member):
        return "it reads floating-point values but does not declare geometry head=1; only a quantizer head may"
    if member.stage.fused_aux_outputs():
        return (
            f"it declares the aux output {', '.join(member.stage.fused_aux_outputs())}; this harness takes one from a head only"
        )
    if is_coder(member):
        if position != size - 1:
            return "a SEGMENT_CODEC ends a group; nothing can follow it"
        return None if member.main_out.layout == "chunked" else "a SEGMENT_CODEC's main output is a chunked port"
    if member.main_out.layout != "stream":
        return "all but a SEGMENT_CODEC give a stream"
    if itemsize(member.main_in.dtype) != itemsize(member.main_out.dtype):
        return f"it turns {member.main_in.dtype} into {member.main_out.dtype}; elements keep their width within a group"
    return None


def _refuse_head(member: Member, position: int) -> str | None:
    why = refuse_any_head(member, position)
    if why is not None:
        return why
    for what, kind in (("reads", member.main_in), ("makes", member.main_out)):
        if kind.dtype not in C_NAMES:
            return f"it {what} {kind.dtype}; a head of this harness computes with {', '.join(C_NAMES)}"
    if member.main_out.dtype in FLOAT_DTYPES:
        return f"a quantizer head makes codes, not {member.main_out.dtype}"
    return None


@dataclass(frozen=True)
class ChunkComposition(Composition):
    """A chain taken apart into the head, ops and the coder."""

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a chunk."""
        return self.chunk * itemsize(self.first)

    @cached_property
    def value_type(self) -> str:
        """C type of the elements the chain starts from."""
        return C_NAMES[self.source] if self.head else code_type(self.source)

    @cached_property
    def lane(self) -> int:
        """Elements that a host lane takes at once through ELEMENTWISE ops."""
        return min(256, self.chunk)

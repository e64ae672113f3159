"""The element form: policies written as plain CUDA with warp intrinsics, on a warp's striped elements."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from briquette.declare import FusionAccess
from briquette.errors import DeclarationError
from briquette.harness import Direction, Member
from briquette.record import RunRecord

if TYPE_CHECKING:
    from .chain import Composition

#: the parameter that a predictor in this form begins with, which the harness fills
STEP_SLOT: Final = ("inv2eb", "float32")
#: elements of the largest block: 32 a lane
LARGEST: Final = 1024
_CODES: Final = frozenset({"int32", "uint32"})


def in_element_form(member: Member) -> bool:
    """Whether the member's policy is written in the element form (it declares ``element_form`` in its geometry)."""
    return bool(member.op.geometry.get("element_form"))


def is_predictor(member: Member) -> bool:
    """Whether an element-form policy has fromParams, delta and undelta: its parameters begin with ``inv2eb``."""
    return in_element_form(member) and member.op.params is not None and member.op.params.fields[:1] == (STEP_SLOT,)


def report_bytes(member: Member) -> int:
    """Return the bytes behind the member's parameters in which its kernel reports codes that it cannot carry."""
    return 16 if is_predictor(member) else 0


def report_offset(member: Member) -> int:
    """Return where those bytes lie, from the beginning of the parameters."""
    assert member.op.params is not None
    return -(-member.op.params.size // 16) * 16


def refuse_elements(chain: Sequence[Member]) -> str | None:
    """Return why the element-form members of `chain` cannot run, or None."""
    for member in filter(in_element_form, chain):
        why = _refuse(member)
        if why is not None:
            return f"{member.node}: {why}"
    return None


def _refuse(member: Member) -> str | None:
    span, access = member.spec.span, member.spec.access
    for what, kind in (("reads", member.main_in), ("makes", member.main_out)):
        if kind.layout == "stream" and kind.dtype not in _CODES:
            return f"it {what} {kind.dtype}; policies in the element form compute with 32-bit codes"
    if access is not FusionAccess.ELEMENTWISE and (span % 32 or span & (span - 1) or span > LARGEST):
        return f"a block in the element form is 32 elements times a power of two up to {LARGEST // 32}, not {span}"
    given = member.op.geometry.get("elems_per_lane", span // 32)
    if access is FusionAccess.ELEMENTWISE and given not in (0, 1, 2, 4, 8, 16, 32):
        return f"elems_per_lane={given} is no power of two up to 32"
    if access is not FusionAccess.ELEMENTWISE and given * 32 != span:
        return f"elems_per_lane={given} gives blocks of {given * 32} elements, but the span is {span}"
    names = [name for name, _ in member.op.params.fields] if member.op.params is not None else []
    if STEP_SLOT[0] in names and not is_predictor(member):
        return "its parameter inv2eb must come first and be a float32: the harness writes the inverse of the head's step there"
    if is_predictor(member) and access is not FusionAccess.REGION_LOCAL:
        return f"its parameters begin with inv2eb, so it is a predictor, which is REGION_LOCAL and not {access.name}"
    return None


def with_step(packed: bytes, member: Member, head: Member | None, record: RunRecord) -> bytes:
    """Return a predictor's parameters with ``inv2eb`` filled: the inverse of the head's step; 1 where codes are all there is.

    Raises
    ------
    DeclarationError
        The state of the group's head holds no ``quant_step``.
    """
    inverse = 1.0
    if head is not None:
        step = record.of(head.node).get("quant_step")
        if not isinstance(step, (int, float)):
            raise DeclarationError(
                f"{member.node} needs the step of {head.node}, but its state holds no number 'quant_step'; it has: "
                f"{', '.join(record.of(head.node)) or 'nothing'}"
            )
        largest = float(np.finfo(np.float32).max)
        inverse = min(1.0 / float(step), largest) if float(step) > 1.0 / largest else (largest if step else 0.0)
    return struct.pack("<f", np.float32(inverse)) + packed[4:]


def policy_type(member: Member) -> str:
    """Return the C++ type that the skeleton calls: the policy, or a coder's adaptor."""
    if in_element_form(member) and member.spec.access is FusionAccess.SEGMENT_CODEC:
        return f"briquette::element::Coder<{member.op.qualified}, {member.spec.span // 32}>"
    return member.op.qualified


def device_pass(direction: Direction, parts: Composition, ops: Sequence[tuple[int, Member]]) -> Iterator[str]:
    """Yield the body of a chain's pass: every op on the layout it works on, turned from one to the other where they differ.

    Parameters
    ----------
    ops : sequence of (index, member)
        In the order they run.
    """
    striped_tail = parts.coder is not None and in_element_form(parts.coder)
    striped = direction == "inverse" and striped_tail
    turn = "    briquette::element::turn(c);"
    yield _zero(striped)
    for index, member in ops:
        mine = in_element_form(member)
        if mine != striped and member.spec.access is not FusionAccess.ELEMENTWISE:
            striped = mine
            yield turn
        yield f"    briquette::{_call(direction, index, member)}c, params + {parts.offsets[index]});"
        yield _zero(striped)
    if striped != (direction == "forward" and striped_tail):
        yield turn


def _zero(striped: bool) -> str:
    return f"    if (!Whole) briquette::{'element::zero_striped' if striped else 'zero_from'}(c, count);"


def _call(direction: Direction, index: int, member: Member) -> str:
    if not in_element_form(member):
        return f"device::lane_{direction}<Op{index}>("
    if not is_predictor(member):
        return f"element::{'apply' if direction == 'forward' else 'invert'}<Op{index}>("
    return (
        f"element::predict<Op{index}, {report_offset(member)}>(" if direction == "forward" else f"element::unpredict<Op{index}>("
    )

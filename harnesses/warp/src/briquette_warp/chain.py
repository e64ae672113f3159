"""A chain as this harness reads it: optional head, code-to-code ops, optional tile selector, optional segment coder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from briquette.declare import FusionAccess
from briquette.harness import Direction, Member
from briquette.layouts import Stretch
from briquette.params import Scalar
from briquette.ports import CODE_DTYPES, FLOAT_DTYPES, TileInfo, numpy_dtype
from briquette.record import RunRecord

from .element import in_element_form, refuse_elements, report_bytes, with_step

#: NumPy name -> C type of what the harness computes with
C_NAMES: Final[Mapping[str, str]] = {
    "float16": "briquette::Half",
    "bfloat16": "briquette::BFloat16",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
}
#: what `FusedOp.geometry` may say here
GEOMETRY: Final = frozenset({"head", "resolves", "element_form", "elems_per_lane", "n_ab"})
#: those that are 0 or 1, of any harness
FLAGS: Final = frozenset({"head", "resolves", "element_form", "per_type"})

#: values that a head may take for missing, beside NaN and infinities
MISSING: Final = 4


def is_head(member: Member) -> bool:
    """Whether the member turns values into codes (it declares ``head`` in its geometry)."""
    return bool(member.op.geometry.get("head"))


def is_coder(member: Member) -> bool:
    return member.spec.access is FusionAccess.SEGMENT_CODEC


def is_selector(member: Member) -> bool:
    return member.spec.access is FusionAccess.TILE_SELECTOR


def is_layout(member: Member) -> bool:
    return member.spec.access is FusionAccess.LAYOUT


def carried_tiles(member: Member) -> TileInfo | None:
    """Return what the tiles are that a coder keeps in its payload; None where no port of tiles feeds it."""
    found = (member.types[p].tiles for p in member.stage.optional_inputs if p in member.types)
    return next((tiles for tiles in found if tiles is not None), None)


def tiles_port(member: Member) -> str | None:
    """Return the output on which a selector puts modes and side elements."""
    return next((p for p in member.stage.outputs[1:] if member.types[p].tiles is not None), None)


def slice_span(member: Member) -> int:
    """Return the span that the generated ``briquette::Op`` states: 0 for ELEMENTWISE, which takes a lane's array whole."""
    if member.spec.access is not FusionAccess.ELEMENTWISE:
        return member.spec.span
    return 32 * member.op.geometry.get("elems_per_lane", 0) if in_element_form(member) else 0


def refuse_chain(chain: Sequence[Member], chunk: int, direction: Direction = "forward") -> str | None:
    """Return why no geometry of any target runs `chain`, or None."""
    for position, member in enumerate(chain):
        why = _refuse_member(member, position, len(chain), chunk)
        if why is not None:
            return f"{member.node}: {why}"
    why = _refuse_tiles(chain, direction) or _refuse_layout(chain) or refuse_elements(chain)
    if why is not None:
        return why
    spans = sorted({m.spec.span for m in chain if m.spec.access is FusionAccess.REGION_LOCAL})
    for small, large in itertools.pairwise(spans):
        if large % small:
            return f"the regions of {small} and {large} elements do not divide one another"
    return None


def _refuse_tiles(chain: Sequence[Member], direction: Direction) -> str | None:
    """Return what is wrong with how a selector and its coder stand together."""
    selectors = [i for i, m in enumerate(chain) if is_selector(m)]
    coder = chain[-1] if is_coder(chain[-1]) else None
    if coder is not None and carried_tiles(coder) is not None and not selectors:
        return f"{coder.node}: the coder keeps the modes of tiles; it runs in one group with their selector"
    if not selectors:
        return None
    if len(selectors) > 1:
        return f"{chain[selectors[1]].node}: a group has one TILE_SELECTOR, {chain[selectors[0]].node} is one already"
    selector = chain[selectors[0]]
    striped = next(filter(in_element_form, chain), None)
    if striped is not None:
        return f"{striped.node}: policies in the element form work on a warp's elements; a TILE_SELECTOR chooses lane by lane"
    if coder is None and direction == "forward":
        return f"{selector.node}: a TILE_SELECTOR chooses by its coder's cost; it runs in one group with the coder"
    for member in chain[selectors[0] + 1 :]:
        if member is not coder and member.spec.access is not FusionAccess.ELEMENTWISE:
            return f"{member.node}: only ELEMENTWISE stages may stand between a TILE_SELECTOR and its coder"
    if coder is None:
        return None
    if selector.spec.span % coder.spec.span:
        return f"{selector.node}: a tile of {selector.spec.span} elements is no whole number of segments of {coder.spec.span}"
    carried = carried_tiles(coder)
    if carried is not None and carried != selector.types[tiles_port(selector) or ""].tiles:
        return f"{coder.node}: the coder keeps the tiles of another selector than {selector.node}"
    return None


def _refuse_layout(chain: Sequence[Member]) -> str | None:
    """Return what is wrong with what stands before a LAYOUT, or None: a kernel gathers elements when it loads them."""
    at = next((i for i, m in enumerate(chain) if is_layout(m)), None)
    if at is None:
        return None
    for member in chain[:at]:
        if member.spec.access is not FusionAccess.ELEMENTWISE or in_element_form(member):
            return (
                f"{member.node}: it sees elements in another order than {chain[at].node} gives them; "
                f"only ELEMENTWISE stages may stand before a LAYOUT in a group"
            )
    if in_element_form(chain[at]):
        return f"{chain[at].node}: a LAYOUT has no element form"
    if chain[at].main_in != chain[at].main_out:
        return f"{chain[at].node}: a LAYOUT keeps the code type, and does not turn {chain[at].main_in} into {chain[at].main_out}"
    return None


def refuse_words(geometry: Mapping[str, int], known: frozenset[str]) -> str | None:
    """Return which geometry word a harness that knows some of them does not take, or None."""
    unknown = sorted(set(geometry) - known)
    if unknown:
        return f"its geometry names {', '.join(unknown)}; this harness knows {', '.join(sorted(known))}"
    odd = [f"{word}={geometry[word]}" for word in sorted(FLAGS & set(geometry)) if geometry[word] not in (0, 1)]
    return f"its geometry says {', '.join(odd)}; that is 0 or 1" if odd else None


def _refuse_member(member: Member, position: int, size: int, chunk: int) -> str | None:
    why = refuse_words(member.op.geometry, GEOMETRY)
    if why is not None:
        return why
    if member.op.dtypes and member.main_in.dtype not in member.op.dtypes:
        return f"its policy works on {', '.join(member.op.dtypes)}, not {member.main_in.dtype}"
    if member.spec.unit != "elements":
        return f"its span is {member.spec.span} {member.spec.unit}; this harness counts elements"
    if chunk % member.spec.span:
        return f"its span of {member.spec.span} elements does not divide the archive chunk of {chunk}"
    if is_head(member):
        return _refuse_head(member, position)
    if member.main_in.dtype in FLOAT_DTYPES:
        return "it reads floating-point values but does not declare geometry head=1; only a quantizer head may"
    for what, kind in (("reads", member.main_in), ("makes", member.main_out)):
        if kind.dtype not in CODE_DTYPES:
            known = ", ".join(name for name in C_NAMES if name in CODE_DTYPES)
            return f"it {what} {kind.dtype}; this harness computes with codes of {known}"
    if is_selector(member):
        port = tiles_port(member)
        if port is None or member.stage.fused_aux_outputs() != (port,):
            return "a TILE_SELECTOR has one aux output, a chunked port of tiles"
        if member.main_in.dtype != member.main_out.dtype:
            return f"it turns {member.main_in.dtype} into {member.main_out.dtype}; a TILE_SELECTOR keeps the code type"
    elif member.stage.fused_aux_outputs():
        return (
            f"it declares the aux output {', '.join(member.stage.fused_aux_outputs())}; this harness takes one from a head only"
        )
    if is_coder(member):
        if position != size - 1:
            return "a SEGMENT_CODEC ends a group; nothing can follow it"
        return None if member.main_out.layout == "chunked" else "a SEGMENT_CODEC's main output is a chunked port"
    if member.main_out.layout != "stream":
        return "a code-to-code policy gives a stream of codes"
    if member.main_in.itemsize != member.main_out.itemsize:
        return f"it turns {member.main_in.dtype} into {member.main_out.dtype}; codes keep their width within a group"
    return None


def _refuse_head(member: Member, position: int) -> str | None:
    why = refuse_any_head(member, position)
    if why is not None:
        return why
    if in_element_form(member):
        return "a quantizer head has no element form: it checks the bound, and predictors in that form read what it hands them"
    if member.main_out.layout != "stream" or member.main_out.dtype not in CODE_DTYPES:
        return f"a quantizer head turns values into a stream of codes, not {member.main_in} into {member.main_out}"
    return None


def refuse_any_head(member: Member, position: int) -> str | None:
    """Return what no harness of this family runs as a head, whatever types it computes with, or None."""
    if position != 0:
        return "a quantizer head stands first in a group"
    if member.spec.access is not FusionAccess.ELEMENTWISE:
        return f"a quantizer head is ELEMENTWISE, not {member.spec.access.name}"
    if len(member.stage.missing_values()) > MISSING:
        return f"it takes {len(member.stage.missing_values())} values for missing; this harness skips at most {MISSING}"
    if member.op.params is None:
        return "a quantizer head declares its parameters (at least its step)"
    aux = member.stage.fused_aux_outputs()
    if len(aux) > 1 or any(member.types[p].layout != "chunked" for p in aux):
        return "a quantizer head has at most one aux output, the chunked port of values kept aside"
    return None


@dataclass(frozen=True)
class Composition:
    """A chain taken apart, with the offsets of each member's parameters in the run's parameter block.

    Attributes
    ----------
    lane : int
        Elements of the array one lane holds on the host: `asked`, where that is given.
    most_words : int
        The most words a chunk takes; 0 without a coder.
    """

    members: tuple[Member, ...]
    chunk: int
    asked: int | None = None

    @cached_property
    def head(self) -> Member | None:
        return self.members[0] if is_head(self.members[0]) else None

    @cached_property
    def coder(self) -> Member | None:
        return self.members[-1] if is_coder(self.members[-1]) else None

    @cached_property
    def interior(self) -> tuple[Member, ...]:
        return self.members[1 if self.head else 0 : len(self.members) - (1 if self.coder else 0)]

    @cached_property
    def side(self) -> tuple[str, str] | None:
        """The port of values kept aside, as (node, port)."""
        if self.head is None or not self.head.stage.fused_aux_outputs():
            return None
        return self.head.node, self.head.stage.fused_aux_outputs()[0]

    @cached_property
    def selector(self) -> Member | None:
        return next((m for m in self.members if is_selector(m)), None)

    @cached_property
    def layout(self) -> Member | None:
        return next((m for m in self.members if is_layout(m)), None)

    @cached_property
    def tiles(self) -> TileInfo | None:
        """The selector's tiles."""
        port = None if self.selector is None else tiles_port(self.selector)
        return None if self.selector is None or port is None else self.selector.types[port].tiles

    @cached_property
    def carries(self) -> bool:
        """Whether the coder keeps modes and side elements of the tiles in its payload."""
        return self.coder is not None and carried_tiles(self.coder) is not None

    @cached_property
    def tiles_sink(self) -> tuple[str, str] | None:
        """The port on which modes and side elements leave the group, as (node, port)."""
        port = None if self.selector is None or self.carries else tiles_port(self.selector)
        return None if self.selector is None or port is None else (self.selector.node, port)

    @cached_property
    def most_tile_words(self) -> int:
        """The most words a chunk takes at the tiles' port; 0 where none leaves the group."""
        if self.selector is None or self.tiles_sink is None:
            return 0
        return self.selector.stage.max_chunk_words(self.tiles_sink[1], self.selector.types, self.chunk)

    @cached_property
    def resolves(self) -> bool:
        """Whether the head's policy resolves its parameters from the data's extent itself."""
        if self.reports:
            return False  # the head's step goes into another member's parameters, which is done on the host
        return self.head is not None and bool(self.head.op.geometry.get("resolves"))

    @cached_property
    def missing(self) -> tuple[int, ...]:
        """The bits of the values that the head takes for missing, in the data's type."""
        values = self.head.stage.missing_values() if self.head is not None else ()
        if not values:
            return ()
        dtype = numpy_dtype(self.source)
        with np.errstate(over="ignore"):
            return tuple(np.array(values, np.float64).astype(dtype).view(f"u{dtype.itemsize}").tolist())

    @cached_property
    def source(self) -> str:
        return self.members[0].main_in.dtype

    @cached_property
    def stated(self) -> str:
        """How a survey states the extent of the source, as a format of `struct`: 64 bits, integers as integers."""
        return {"int": "q", "uint": "Q"}.get(self.source.rstrip("0123456789"), "d")

    @cached_property
    def first(self) -> str:
        """Type of the first codes: the head's output, or the chain's input."""
        return self.head.main_out.dtype if self.head else self.source

    @cached_property
    def result(self) -> str:
        """Type of the stream a chain without a coder ends with."""
        return self.members[-1].main_out.dtype

    @cached_property
    def lane(self) -> int:
        return self.asked or max(self.lanes)

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """What `lane` may be, ascending."""
        unit = math.lcm(*(m.spec.span for m in self.members))
        return tuple(unit * k for k in range(1, 256 // unit + 1) if (self.chunk // unit) % k == 0) or (unit,)

    @cached_property
    def most_words(self) -> int:
        if self.coder is None:
            return 0
        return self.coder.stage.max_chunk_words(self.coder.stage.outputs[0], self.coder.types, self.chunk)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Offset of each member's parameters in the block, 16-byte aligned."""
        found, at = [], 0
        for member in self.members:
            found.append(at)
            at += _room(member)
        return tuple(found)

    @cached_property
    def param_bytes(self) -> int:
        return sum(map(_room, self.members))

    @cached_property
    def reports(self) -> tuple[int, ...]:
        """Offsets in the block of the words in which kernels report what a policy cannot carry."""
        return tuple(at + _room(m) - report_bytes(m) for at, m in zip(self.offsets, self.members, strict=True) if report_bytes(m))

    @cached_property
    def settled(self) -> bool:
        """Whether others than the head have parameters: none of them looks at the data."""
        return any(m.op.params is not None for m in self.members if m is not self.head)

    def param_block(self, record: RunRecord, stretch: Stretch | None, without_head: bool = False) -> bytes:
        """Return the parameter bytes of a run whose state is in `record`; those of the head may be left 0."""
        block = b""
        for member in self.members:
            if member is self.head and without_head:
                block += bytes(_room(member))
            elif member.op.params is not None:
                packed = member.op.params.pack(_values(member, record, stretch))
                if report_bytes(member):
                    packed = with_step(packed, member, self.head, record)
                block += packed + bytes(_room(member) - len(packed))
        return block


def _values(member: Member, record: RunRecord, stretch: Stretch | None) -> Mapping[str, Scalar]:
    if not is_layout(member):
        return member.stage.fused_params(record.of(member.node), member.types)
    if stretch is None or stretch.layout is None:  # an array without elements has none
        return dict.fromkeys((name for name, _ in member.op.params.fields), 0) if member.op.params is not None else {}
    return stretch.layout.params()


def _room(member: Member) -> int:
    """Return the bytes of a member's parameters in the block."""
    return -(-(member.op.params.size if member.op.params else 0) // 16) * 16 + report_bytes(member)

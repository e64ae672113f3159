"""Composes kernels that run one policy alone, at a given geometry.

They show, one policy at a time, that a policy compiles for a target and what it takes there, and that its results do not
depend on the geometry. Every result goes to memory, so that no compiler leaves out what is to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from briquette.harness import Direction, Member
from briquette.planner import declared
from briquette.ports import PortType
from briquette.stage import Stage
from briquette.target import KernelSource

from .chain import C_NAMES, is_coder, is_head, is_selector, slice_span

#: lanes that may share a span
LANES: Final = (1, 2, 4, 8, 16, 32)
#: a lane's array of this many elements stays in registers
SMALL: Final = 32
#: the longest array that one lane can be asked to hold
_LONGEST: Final = 256
#: threads of a block, a whole number of warps
THREADS: Final = 256
#: one signature for every probe: what the policy reads, what it makes, a coder's words or a head's marks, the parameters
_ARGUMENTS: Final = "const uint8_t *in, uint8_t *out, uint32_t *words, const uint8_t *params"


@dataclass(frozen=True, order=True)
class LaneGeometry:
    """How a span is laid out: `lanes` neighbouring lanes of a warp share it, each holding an array of `elements`.

    With one lane the array may also hold several spans.
    """

    lanes: int
    elements: int

    def __str__(self) -> str:
        return f"{self.lanes}x{self.elements}"

    @property
    def group(self) -> str:
        """The C++ type of the lane group."""
        return "briquette::OneLane" if self.lanes == 1 else f"briquette::WarpLanes<{self.lanes}>"

    @property
    def small(self) -> bool:
        """Whether the lane's array is short enough to stay in registers."""
        return self.elements <= SMALL


def members_of(stage: Stage, dtype: str) -> tuple[Member, Member]:
    """Return a stage fed with `dtype` as a harness sees it, in both directions.

    Raises
    ------
    PipelineError
        The stage does not take the type.
    ValueError
        It declares no policy.
    """
    inputs = {port: PortType(dtype) for port in stage.inputs}
    types = {**inputs, **stage.output_types(inputs)}

    def member(direction: Direction) -> Member:
        spec, op = declared(stage, direction)
        if op is None:
            raise ValueError(f"stage {stage.name!r} declares no policy for the {direction} direction")
        return Member(stage.name, stage, spec, op, types)

    return member("forward"), member("inverse")


def geometries(member: Member) -> tuple[LaneGeometry, ...]:
    """Return every geometry at which a policy may be asked to run, one lane first; empty where there is none."""
    span = member.spec.span
    if is_head(member):
        found = [LaneGeometry(1, 32), LaneGeometry(1, 4)]
    elif span == 1:
        found = [LaneGeometry(1, 32), *(LaneGeometry(n, 32 // n) for n in LANES[1:])]
    else:
        alone = SMALL if span < SMALL and SMALL % span == 0 and not is_coder(member) else span
        found = [LaneGeometry(1, alone), *(LaneGeometry(n, span // n) for n in LANES[1:] if span % n == 0)]
    bound = member.op.geometry.get("elems_per_lane")
    return tuple(g for g in found if g.elements <= _LONGEST and bound in (None, g.elements))


def typical(member: Member) -> tuple[LaneGeometry, ...]:
    """Return the geometries that a GPU would use: one lane a span, 8 lanes or as many as hold 32 elements each, a whole warp.

    A coder's segment or a selector's tile of more than 64 elements is always shared: one lane could not hold it in registers
    by far.
    """
    large = is_coder(member) or is_selector(member)
    alone = [g for g in geometries(member) if g.lanes == 1 and not (large and g.elements > 2 * SMALL)]
    shared = [g for g in geometries(member) if g.lanes > 1]
    few = [g for g in shared if g.small and g.lanes >= 8] or shared[-1:]
    return tuple(dict.fromkeys([*alone, *few[:1], *shared[-1:]]))


@dataclass(frozen=True)
class Probe:
    """A policy at a geometry; `forward` and `inverse` are the same stage's members in either direction."""

    forward: Member
    inverse: Member
    geometry: LaneGeometry

    @property
    def room(self) -> int:
        """Words set aside for a segment of a coder; 0 for other policies."""
        member = self.forward
        if not is_coder(member):
            return 0
        return member.stage.max_chunk_words(member.stage.outputs[0], member.types, member.spec.span)


def probe_source(name: str, probes: Sequence[Probe]) -> KernelSource:
    """Return a translation unit of two kernels a probe, ``NAME_forward`` and ``NAME_inverse`` with NAME ``p0``, ``p1``, ...

    Parameters
    ----------
    name : str
        For messages.
    probes : sequence of Probe

    Notes
    -----
    The kernels take the arguments ``in, out, words, params``. Thread l of the grid is lane l of the stream, which has a
    whole number of blocks. Code to code: ``in`` and ``out`` are codes. Head: ``words`` receives a mark for each value.
    Selector: ``words`` holds a tile's mode and side elements; it chooses by the bits of each 32 elements' widest code.
    Coder: ``words`` holds `Probe.room` words a segment, and ``out`` (decoding: ``in``) two words a segment, metadata and size.
    """
    headers = sorted({m.op.include_header for p in probes for m in (p.forward, p.inverse)})
    lines = [
        f"// probes of {name}; composed by briquette-warp",
        "#include <briquette_warp/cuda/probe.cuh>",
        *(f"#include <{header}>" for header in headers),
        "",
    ]
    entries = []
    for i, probe in enumerate(probes):
        for member, direction in ((probe.forward, "forward"), (probe.inverse, "inverse")):
            lines += _kernel(probe, member, f"p{i}", direction)
            entries.append(f"p{i}_{direction}")
    return KernelSource(name, "\n".join(lines), tuple(entries))


def _kernel(probe: Probe, member: Member, prefix: str, direction: str) -> Iterator[str]:
    name, params = f"{prefix}_{direction}", "void"
    types = f"{member.main_in.dtype} to {member.main_out}"
    yield f"// {member.op.qualified}, {types}, span {member.spec.span}, geometry {probe.geometry}"
    yield "namespace {"
    if member.op.params is not None:
        params = f"Params_{name}"
        yield member.op.params.c_source(params, member.op.qualified)
    types = f"{C_NAMES[member.main_in.dtype]}, {C_NAMES[member.main_out.dtype]}"
    yield f"typedef briquette::Op<{member.op.qualified}, {params}, {slice_span(member)}, {types}> Op_{name};"
    yield "}  // namespace"
    yield f'extern "C" __global__ void __launch_bounds__({THREADS}) {name}({_ARGUMENTS}) {{'
    yield "  const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;"
    yield f"  {_call(probe, member, f'Op_{name}', direction == 'forward')}"
    yield "}"


def _call(probe: Probe, member: Member, op: str, forward: bool) -> str:
    elements, group = probe.geometry.elements, probe.geometry.group
    if is_head(member):
        what, arguments = ("quantize", "in, out, words") if forward else ("dequantize", "in, out")
        return f"briquette::probe::{what}<{op}, {elements}>(lane, {arguments}, params);"
    if is_selector(member):
        what, arguments = ("choose" if forward else "restore"), "in, out, words"
        return f"briquette::probe::{what}<{op}, {elements}, {group}>(lane, {arguments}, params);"
    if is_coder(member):
        what, arguments = "encode", "in, reinterpret_cast<uint32_t *>(out)"
        if not forward:
            what, arguments = "decode", "reinterpret_cast<const uint32_t *>(in), out"
        return f"briquette::probe::{what}<{op}, {elements}, {group}, {probe.room}u>(lane, {arguments}, words, params);"
    return f"briquette::probe::{'forward' if forward else 'inverse'}<{op}, {elements}, {group}>(lane, in, out, params);"

"""What is looked at: the stages of a pack, and for each the chains it can join, with partners chosen by role."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess
from briquette.errors import BriquetteError
from briquette.executor import Executable
from briquette.graph import Graph
from briquette.ports import INTEGER_DTYPES, STREAM_DTYPES, PortType
from briquette.record import Bound
from briquette.stage import Stage
from briquette_warp.survey import used_by_presets

from .ways import Place

#: element types in the order in which they are looked at
DTYPES: Final = (
    *("float32", "int32", "float64", "int64", "int16", "uint16", "uint32", "uint64", "uint8", "int8", "float16", "bfloat16"),
)
#: bounds that cases run under, by mode: of integers and of floating-point values
_EB: Final = {"abs": (3.0, 1e-3), "rel": (1e-2, 1e-3), "pwrel": (1e-2, 1e-2)}
#: partners of a role that are tried for a chain, in all their combinations
_TRIED: Final = 12


@dataclass(frozen=True, eq=False)
class Case:
    """A chain of stages fed with one type, under one bound.

    Attributes
    ----------
    stages : tuple of Stage
    dtype : str
    bound : Bound or None
    about : int
        Which of the stages is looked at; the others are partners.
    """

    stages: tuple[Stage, ...]
    dtype: str
    bound: Bound | None
    about: int = 0
    _made: dict[tuple[str, str], Executable] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        bound = f", {self.bound.mode} {self.bound.eb:g}" if self.bound else ""
        return f"{' + '.join(s.name for s in self.stages)} ({self.dtype}{bound})"

    @cached_property
    def graph(self) -> Graph:
        return bq.chain(*self.stages).graph

    @cached_property
    def fresh(self) -> Graph:
        """The same chain, of stages made anew from the parameters, as a reader makes them."""
        return bq.chain(*(type(s).from_parameters(s.parameters()) for s in self.stages)).graph

    @property
    def bound_given(self) -> dict[str, Any]:
        """The bound as arguments of `briquette.compress`."""
        return {} if self.bound is None else {"eb": self.bound.eb, "mode": self.bound.mode}

    @property
    def stage(self) -> Stage:
        return self.stages[self.about]

    @property
    def alone(self) -> bool:
        return len(self.stages) == 1

    @property
    def lossless(self) -> bool:
        """Whether decompression must give the input back bit for bit."""
        return not any((s.needs_bound or s.takes_bound) and self.bound is not None for s in self.stages)

    def on(self, place: Place, fusion: str, fresh: bool = False) -> Executable:
        """Return the chain's executable at a place; `fresh`: of stages made anew."""
        key = (place.name, f"{fusion}{' fresh' if fresh else ''}")
        if key not in self._made:
            self._made[key] = place.executable(self.fresh if fresh else self.graph, self.dtype, fusion)
        return self._made[key]

    @cached_property
    def chunk(self) -> int:
        return self.graph.chunk_for(self.dtype)

    @property
    def fed(self) -> str:
        """The element type that the stage reads in this chain."""
        node = list(self.graph.nodes)[self.about]
        return self.graph.types(self.dtype)[node][self.stage.inputs[0]].dtype

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """The spans of the stages in elements of the stream each reads."""
        types = self.graph.types(self.dtype)
        return tuple(s.fusion_spec().elements(types[n][s.inputs[0]].itemsize) for n, s in self.graph.nodes.items())

    @property
    def declares_policies(self) -> bool:
        return all(s.fusion_spec().fusable and s.fused_op() is not None for s in self.stages)


@dataclass(eq=False)
class Subject:
    """One stage of the pack, made with one set of parameters."""

    stage: Stage
    origin: Any
    title: str
    cases: tuple[Case, ...] = ()
    #: chains that no installed partner could be found for
    without: tuple[str, ...] = ()

    @property
    def alone(self) -> tuple[Case, ...]:
        return tuple(c for c in self.cases if c.alone)

    @property
    def main(self) -> Case | None:
        """The case that speaks for the stage: alone where it can be, of the first type."""
        return next(iter(self.alone), None) or next(iter(self.cases), None)

    @property
    def alone_and_joined(self) -> tuple[Case, ...]:
        """That case, and the first chain where it is another one."""
        joined = next((c for c in self.cases if not c.alone), None)
        return tuple(dict.fromkeys(c for c in (self.main, joined) if c is not None))


def is_head(stage: Stage) -> bool:
    """Whether a stage turns values into codes under a bound."""
    return stage.needs_bound or stage.takes_bound


def takes(stage: Stage, dtype: str) -> Mapping[str, PortType] | None:
    """Return the types of a stage's ports where its inputs carry `dtype`, None where it refuses the type."""
    try:
        return stage.output_types({port: PortType(dtype) for port in stage.inputs})
    except BriquetteError:
        return None


def bound_for(stages: Iterable[Stage], dtype: str) -> Bound | None:
    """Return a bound that all stages which want one serve; None where none wants one."""
    wanting = [s for s in stages if is_head(s)]
    if not wanting:
        return None
    modes = [m for m in wanting[0].bound_modes if all(m in s.bound_modes for s in wanting)]
    mode = next((m for m in _EB if m in modes), None)
    return None if mode is None else Bound(_EB[mode][0 if dtype in INTEGER_DTYPES else 1], mode)


def subjects_of(
    pack: str,
    parameters: Mapping[str, Sequence[Mapping[str, Any]]],
    judge: Place | None,
    full: bool,
    only: Sequence[str] = (),
) -> Iterator[Subject]:
    """Yield the pack's stages, each with the chains it can join; those that cannot be loaded are another check's matter.

    Parameters
    ----------
    parameters : mapping of stage name to sets of parameters
        Looked at beside the defaults.
    judge : Place or None
        Where a chain that runs as one kernel is preferred to one that does not.
    full : bool
        Every type, several partners a role, and the parameters that installed presets use, rather than a few types and one
        partner.
    only : sequence of str
        Names of the stages to look at; empty: all.
    """
    registry = discovery.registry()
    partners = _partners()
    presets = used_by_presets(registry, []) if full else {}
    for name in only or stage_names(pack):
        try:
            cls = registry.stage_class(f"{pack}:{name}")
            origin = registry.stage_origin(cls)
        except BriquetteError:
            continue
        seen: list[Stage] = []
        for given in ({}, *parameters.get(name, ()), *presets.get(cls, ())):
            try:
                stage = cls.from_parameters(given)
            except BriquetteError:
                if given or parameters.get(name):
                    raise
                continue
            if stage in seen:
                continue
            seen.append(stage)
            words = ", ".join(f"{k}={v}" for k, v in given.items())
            subject = Subject(stage, origin, f"{name}({words})" if words else name)
            _find_cases(subject, partners, judge, full)
            yield subject


def stage_names(pack: str) -> tuple[str, ...]:
    """Return the names of the stages that a pack registers, importing nothing."""
    wanted = next((s for s in discovery.registry().packs() if s.distribution == pack and s.state != "shadowed"), None)
    return wanted.names.get("stages", ()) if wanted else ()


def _partners() -> list[tuple[str, Stage]]:
    """Return every installed stage that has default parameters, with its distribution."""
    registry, found = discovery.registry(), []
    for name in registry.stages():
        try:
            cls = registry.stage_class(name)
            found.append((registry.stage_origin(cls).distribution, cls.from_parameters({})))
        except BriquetteError:
            continue
    return found


def _find_cases(subject: Subject, partners: list[tuple[str, Stage]], judge: Place | None, full: bool) -> None:
    stage, access = subject.stage, subject.stage.fusion_spec().access
    accepted = [d for d in DTYPES if d in STREAM_DTYPES and takes(stage, d) is not None]
    own = subject.origin.distribution
    roles: dict[str, list[Stage]] = {"head": [], "region": [], "selector": [], "coder": []}
    for _, other in sorted(partners, key=lambda p: (p[0] == own, p[0], p[1].name)):
        kind = other.fusion_spec().access
        if type(other) is type(stage):
            continue
        if is_head(other):
            roles["head"].append(other)
        elif kind is FusionAccess.SEGMENT_CODEC:
            roles["coder"].append(other)
        elif kind is FusionAccess.REGION_LOCAL:
            roles["region"].append(other)
        elif kind is FusionAccess.TILE_SELECTOR:
            roles["selector"].append(other)
    cases: list[Case] = []
    without: list[str] = []
    if access is not FusionAccess.TILE_SELECTOR:
        few = accepted if full else _few(accepted, stage.fusion_spec().unit == "bytes")
        cases += [c for d in few if (c := _case((stage,), d, 0)) is not None]
        cases += list(_of_other_bounds(cases))
        if stage.takes_bound and not stage.needs_bound:  # it can do without one
            cases += [Case((stage,), c.dtype, None) for c in cases[:1]]
    for shape in _shapes(stage, access, full):
        types = accepted if full else accepted[:1]
        found = _joined(stage, shape, roles, types, judge, 3 if full else 1)
        cases += found
        if not found:
            without.append(" + ".join(shape))
    subject.cases, subject.without = tuple(cases), tuple(without)


def _of_other_bounds(cases: Sequence[Case]) -> Iterator[Case]:
    """Yield the cases that have a bound again, in every mode, and far below and above what the type holds."""
    for case in cases:
        if case.bound is None:
            continue
        width = 8 * PortType(case.dtype).itemsize
        absolute = (0.4, 2.0 ** (width - 3), 2.0 ** (width - 1), 2.0**width) if case.dtype in INTEGER_DTYPES else (1e-9, 1e4)
        if case.dtype == "float64":
            absolute = (*absolute, 5e-324)  # which no step divides
        others = {"abs": absolute, "rel": (1e-9, 0.9), "pwrel": (1e-12 if width == 64 else 1e-6, 0.9)}
        for mode in (m for m in others if all(m in s.bound_modes for s in case.stages if is_head(s))):
            usual = () if mode == case.bound.mode else (1e-3,)
            yield from (Case(case.stages, case.dtype, Bound(eb, mode)) for eb in (*usual, *others[mode]))


def _few(accepted: Sequence[str], narrow: bool) -> list[str]:
    """Return the types that the quick level looks at: two widths and an unsigned one, or of bytes (`narrow`) two widths."""
    first = list(accepted[:1])
    other = [d for d in accepted[1:] if PortType(d).itemsize != PortType(accepted[0]).itemsize]
    if narrow:
        return first + sorted(other, key=lambda d: PortType(d).itemsize)[:1]
    return list(dict.fromkeys([*first, *other[:1], *[d for d in accepted if d.startswith("uint")][:1]]))


def _shapes(stage: Stage, access: FusionAccess, full: bool) -> list[tuple[str, ...]]:
    """Return the chains that a stage of this role can join, as roles; ``self`` is the stage."""
    if is_head(stage):
        shapes = [("self", "region", "coder"), ("self", "coder")]
    elif access is FusionAccess.SEGMENT_CODEC:
        shapes = [("head", "region", "self"), ("head", "self"), ("region", "self")]
        if type(stage).cost is not Stage.cost:  # then selectors choose by it
            return [shapes[0], ("head", "selector", "self"), *(shapes[1:] if full else ())]
    elif access is FusionAccess.TILE_SELECTOR:
        shapes = [("head", "self", "coder"), ("self", "coder")]
    else:
        shapes = [("head", "self", "coder"), ("self", "coder"), ("head", "self")]
    return shapes if full or access is FusionAccess.TILE_SELECTOR else shapes[:1]


def _joined(
    stage: Stage,
    shape: tuple[str, ...],
    roles: Mapping[str, list[Stage]],
    accepted: Sequence[str],
    judge: Place | None,
    most: int,
) -> list[Case]:
    about = shape.index("self")
    choices = [[stage] if role == "self" else roles[role] for role in shape]
    types = DTYPES[:4] if shape[0] == "head" else accepted
    whole: list[Case] = []
    other: list[Case] = []
    if not stage.fusion_spec().fusable or stage.fused_op() is None:
        judge = None  # nothing fuses with it: any partner will do
    for dtype in types:
        if judge is None and len(other) >= most:
            break
        for tried, stages in enumerate(itertools.product(*choices)):
            case = _case(stages, dtype, about)
            if case is None or tried > _TRIED**2:
                continue
            (whole if judge is not None and _is_one(case, judge) else other).append(case)
            if len(whole) >= most:
                return whole
    return whole or other[:most]


def _case(stages: Sequence[Stage], dtype: str, about: int) -> Case | None:
    bound = bound_for(stages, dtype)
    if bound is None and any(s.needs_bound for s in stages):
        return None
    case = Case(tuple(stages), dtype, bound, about)
    try:
        _ = case.graph.types(dtype), case.chunk
    except BriquetteError:
        return None
    return case


def _is_one(case: Case, judge: Place) -> bool:
    """Whether both directions run as one kernel at a place."""
    try:
        plan = case.on(judge, "auto").plan
    except BriquetteError:
        return False
    return plan.forward.groups == plan.inverse.groups == (case.graph.order,)

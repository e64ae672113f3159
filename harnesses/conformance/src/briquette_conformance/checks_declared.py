"""What a pack and its stages declare: that it loads, is consistent, copies and pickles, and that policies keep to their rules."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Iterator
from typing import Any, Final

import briquette as bq
from briquette import discovery
from briquette.declare import FusedOp, FusionAccess
from briquette.errors import BriquetteError, DeclarationError
from briquette.harness import Direction
from briquette.planner import chain_members, declared
from briquette.ports import PortType
from briquette.sources import resolve_headers
from briquette.target import KernelSource

from .base import Context, Proof, check, main_case
from .cases import Subject, takes
from .report import Fault, NotHere

#: what a policy may not say, with the reason; in the element form the first group is allowed
_GEOMETRY: Final = (
    (r"\b(threadIdx|blockIdx|blockDim|gridDim)\b", "names {0}: the geometry is the harness's, ask the group `g`"),
    (r"\b__(shfl|ballot|any|all|reduce|match|activemask)\w*", "calls {0}: what crosses lanes goes through the group `g`"),
)
_NEVER: Final = (
    (r"\b__shared__\b", "declares {0} memory, which is the harness's"),
    (r"\b(fma|fmaf|__fmaf_\w+|__fma_\w+|__builtin_fmaf?)\s*\(", "calls {0}): contraction, which no other target has"),
    (
        r"(?<![\w.>:])(expf?|exp2f?|logf?|log2f?|log10f?|powf?|sinf?|cosf?|tanhf?|rsqrtf?|cbrtf?)\s*\(",
        "calls {0}): a library's transcendental rounds differently from target to target",
    ),
    (r"\b__(expf|logf|powf|sinf|cosf|fdividef|frcp_\w+|saturatef)\s*\(", "calls {0}): an approximation of the GPU's"),
    (r"#\s*pragma\s+(STDC\s+FP_CONTRACT|GCC\s+optimize|clang\s+fp)\b", "sets {0}, which changes rounding"),
    (r"\b(fast-math|__fast_math)\b", "asks for {0}"),
    (r"\bstatic\s+(?!_*(constexpr|inline|const\b|__device__))[\w:<>]+\s+\w+\s*(=|;|\[)", "has static data: `{0}`"),
    (r"\basm\b", "holds {0}: other targets cannot run it"),
)


@check("loads", per_stage=False)
def loads(ctx: Context) -> Iterator[Proof]:
    """The pack is found, its API ranges fit, everything it registers loads, and its names are its own."""
    mine = [s for s in discovery.registry().packs(load=True) if s.distribution == ctx.pack and s.state != "shadowed"]
    if not mine:
        known = ", ".join(s.distribution for s in discovery.registry().packs())
        raise Fault(f"no installed distribution {ctx.pack!r} registers anything with briquette; installed packs: {known}")
    (found,) = mine[:1]
    if found.state != "loaded":
        raise Fault(f"the pack is {found.state}: {found.reason or 'nothing of it could be loaded'}")
    shared = [note for note in found.notes if "is also registered by" in note]
    if shared:
        raise Fault("; ".join(shared))
    printed = [note for note in found.notes if note not in shared]
    if printed:
        raise Fault(f"importing it writes to the terminal: {'; '.join(printed)}")
    count = ", ".join(f"{len(names)} {kind}" for kind, names in found.names.items())
    yield Proof(detail=count)


@check("presets", per_stage=False)
def presets(ctx: Context) -> Iterator[Proof]:
    """Every preset of the pack builds a pipeline."""
    found = next((s for s in discovery.registry().packs() if s.distribution == ctx.pack), None)
    names = found.names.get("presets", ()) if found else ()
    if not names:
        raise NotHere("the pack has no presets")
    for name in names:
        try:
            pipe = bq.Pipeline.from_preset(f"{ctx.pack}:{name}")
            again = bq.Pipeline.from_toml(pipe.to_toml())
        except BriquetteError as exc:
            raise Fault(f"preset {name!r}: {exc}") from exc
        if again != pipe:
            raise Fault(f"preset {name!r} is another pipeline once it went through TOML")
    yield Proof(detail=f"{len(names)} presets")


@check("declaration")
def declaration(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Frozen dataclass, ports, roles and policies that fit one another, in both directions."""
    stage = subject.stage
    cls = type(stage)
    params: Any = vars(cls).get("__dataclass_params__")
    if params is None or not params.frozen:
        raise Fault(f"class {cls.__qualname__} is no frozen dataclass: write @dataclass(frozen=True); stages never change")
    if stage != cls.from_parameters(stage.parameters()) or hash(stage) != hash(cls.from_parameters(stage.parameters())):
        raise Fault("the stage made anew from its parameters does not equal it, or has another hash: no archive could name it")
    types = list(dict.fromkeys(case.fed for case in subject.cases)) or [main_case(subject).fed]
    for direction in ("forward", "inverse"):
        _one_direction(stage, direction)
    _lockstep(subject, types)
    _side_outputs(stage)
    _types_are_told(stage, types)
    role = stage.fusion_spec()
    span = f" over {role.span} {role.unit}" if role.span > 1 else ""
    yield Proof(detail=f"{role.access.name}{span}, {'policy ' + _name(stage.fused_op()) if stage.fused_op() else 'no policy'}")


def _name(op: FusedOp | None) -> str:
    return op.qualified if op is not None else "none"


def _one_direction(stage: Any, direction: Direction) -> None:
    spec, op = declared(stage, direction)
    what = "fused_op" if direction == "forward" else "inverse_fused_op"
    if op is not None and not spec.fusable:
        raise Fault(f"{what} names the policy {op.qualified} and the role is UNFUSABLE: nothing will ever run it")
    if spec.access is FusionAccess.SEGMENT_CODEC and len(stage.outputs) > 1:
        raise Fault("a SEGMENT_CODEC has one output: the coded segments")
    if spec.access is FusionAccess.LAYOUT and not stage.reads_shape:
        raise Fault("a LAYOUT says where elements go by the array's shape, and reads_shape is not declared")


def _lockstep(subject: Subject, types: list[str]) -> None:
    """The inverse must not be eligible where the forward direction is not: archives would be read by code nothing wrote with."""
    stage = subject.stage
    (spec, op), (back_spec, back_op) = declared(stage, "forward"), declared(stage, "inverse")
    if back_spec.fusable and not spec.fusable:
        raise Fault(f"inverse_fusion_spec is {back_spec.access.name}, fusion_spec UNFUSABLE: the inverse is wider than forward")
    if back_op is not None and op is None:
        raise Fault(f"inverse_fused_op names {back_op.qualified}, fused_op nothing: the inverse is wider than forward")
    if spec.fusable and back_spec.fusable and spec != back_spec:
        raise Fault(f"fusion_spec is {spec} and inverse_fusion_spec {back_spec}: they are in lockstep, span and role alike")
    if op is not None and back_op is not None and op.dtypes and set(back_op.dtypes or types) - set(op.dtypes):
        wider = ", ".join(sorted(set(back_op.dtypes or types) - set(op.dtypes)))
        raise Fault(f"the inverse policy is eligible for {wider}, the forward one for {', '.join(op.dtypes)} only")


def _side_outputs(stage: Any) -> None:
    if stage.fused_op() is None:
        return
    told = stage.fused_aux_outputs()
    unknown = [p for p in told if p not in stage.outputs[1:]]
    if unknown:
        raise Fault(f"fused_aux_outputs names {', '.join(unknown)}; the outputs beside the main one are {stage.outputs[1:]}")
    hidden = [p for p in stage.outputs[1:] if p not in told]
    if hidden:
        raise Fault(
            f"the stage has a policy, and its output {', '.join(hidden)} is not in fused_aux_outputs(): "
            f"an undeclared side output is a barrier, it would never fuse"
        )


def _types_are_told(stage: Any, types: list[str]) -> None:
    for dtype in types:
        found = takes(stage, dtype)
        if found is None or set(found) != set(stage.outputs):
            raise Fault(f"output_types for {dtype} tells of {sorted(found or ())}, the outputs are {sorted(stage.outputs)}")
        for port, kind in found.items():
            if kind.layout == "chunked":
                types_of = {**{p: PortType(dtype) for p in stage.inputs}, **found}
                try:
                    stage.max_chunk_words(port, types_of, 8192)
                except DeclarationError as exc:
                    raise Fault(str(exc)) from exc


@check("pickle")
def pickles(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Pickled and deep-copied, the stage is equal to itself, and cannot be changed."""
    stage = subject.stage
    try:
        again = pickle.loads(pickle.dumps(stage))
    except Exception as exc:
        raise Fault(f"the stage cannot be pickled: {type(exc).__name__}: {exc}; keep nothing but parameters in it") from exc
    if again != stage or copy.deepcopy(stage) != stage:
        raise Fault("the stage's pickled or deep copy does not equal it")
    for name in stage.parameter_names():
        try:
            setattr(copy.copy(stage), name, getattr(stage, name))
        except dataclasses.FrozenInstanceError:
            continue
        raise Fault(f"its parameter {name} can be assigned after it was made")
    yield Proof()


@check("policy text")
def policy_text(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """The policy's headers exist, stay in the pack's namespace, and hold nothing that makes targets differ."""
    ops = [op for op in (subject.stage.fused_op(), subject.stage.inverse_fused_op()) if op is not None]
    if not ops:
        raise NotHere("the stage has no policy: it runs as NumPy, a full citizen")
    lines = 0
    for op in dict.fromkeys(ops):
        text = f"#include <{op.include_header}>\n"
        try:
            texts = resolve_headers(KernelSource(op.op_name, text, ())).texts
        except BriquetteError as exc:
            raise Fault(f"the header of policy {op.qualified} cannot be had: {exc}") from exc
        own = {name: held for name, held in texts.items() if name.split("/")[0] == op.namespace}
        loose = bool(op.geometry.get("element_form"))
        defined = frozenset(re.findall(r"\b(?:float|double|auto|[A-Z])\s+(\w+)\s*\(", "\n".join(own.values())))
        for name, held in own.items():
            _scan(name, held, loose, defined)
            lines += len(held.splitlines())
        if not re.search(rf"\b(namespace\s+{op.namespace}\b)", own[op.include_header]):
            raise Fault(f"<{op.include_header}> has no namespace {op.namespace}, where {op.op_name} is looked for")
    yield Proof(detail=f"{lines} lines of {', '.join(sorted({op.include_header for op in ops}))}")


def _scan(name: str, text: str, loose: bool, defined: frozenset[str]) -> None:
    bare = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    host = False
    for at, line in enumerate(bare.splitlines(), 1):
        code = re.sub(r'"(\\.|[^"\\])*"', '""', line.split("//")[0])
        host = (host or bool(re.match(r"\s*#\s*if.*__CUDACC_RTC__", code))) and not re.match(r"\s*#\s*endif", code)
        for pattern, why in (*(() if loose else _GEOMETRY), *_NEVER):
            match = re.search(pattern, code)
            if match and not host and match.group().rstrip(" (") not in defined:
                raise Fault(f"<{name}>, line {at}: the policy {why.format(match.group().strip())}: {line.strip()}")


@check("expected groups")
def groups(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """On each target that runs kernels, the stage is in a group of one launch each way, with its neighbours."""
    stage = subject.stage
    if stage.fused_op() is None:
        raise NotHere("the stage has no policy, so that it is a barrier and no group is expected")
    if not ctx.places.kernels:
        raise NotHere("; ".join(f"{name}: {why}" for name, why in ctx.places.missing.items()))
    shown: dict[str, list[str]] = {}
    for place in ctx.places.kernels:
        excuse = ctx.excused(subject, place.name)
        whole, reasons = [], []
        for case in subject.cases:
            plan = case.on(place, "auto").plan
            both = (plan.forward, plan.inverse)
            if all(p.launches == 1 and not p.transfers and p.groups == (() if case.alone else (case.graph.order,)) for p in both):
                whole.append(str(case))
            else:
                reasons.append(f"{case}: " + ("; ".join(r.reason for p in both for r in p.reasons) or _refused(case, place)))
        if whole and excuse:
            raise Fault(f"it is declared not to run on {place.name} ({excuse}), and it does: {whole[0]}")
        if not whole and not excuse:
            raise Fault(f"nothing that it is part of runs as one kernel on {place.name}: {' | '.join(dict.fromkeys(reasons))}")
        if whole:
            shown.setdefault(f"{len(whole)} of {len(subject.cases)} chains in one launch each way", []).append(place.name)
    for detail, names in shown.items():
        yield Proof(tuple(names), detail)


def _refused(case: Any, place: Any) -> str:
    for direction in ("forward", "inverse"):
        plan = case.on(place, "auto").plan
        members = chain_members(plan.graph, plan.types, plan.graph.order, direction)
        for harness in place.harnesses.values():
            if members and harness.name in members[0].op.strategies:
                why = harness.refuse(members, direction, place.target, plan.chunk)
                if why:
                    return f"{harness.name}, {direction}: {why}"
    return "no harness that its policy names is installed"

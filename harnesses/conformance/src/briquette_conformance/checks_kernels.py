"""What kernels do beside their results: races, overruns, what compilers for GPUs make of them, speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess
from briquette.harness import Member
from briquette.sources import resolve_headers
from briquette.stage import PrimeContext, Stage
from briquette.target import KernelSource, Module, Target
from briquette_warp.chain import is_coder
from briquette_warp.emulation import EmulatedTarget
from briquette_warp.harness import WarpHarness
from briquette_warp.lanes import GUARD, Outcome, ProbedPolicies
from briquette_warp.probe import Probe, members_of
from briquette_warp.probe import geometries as layouts

from .base import Context, Proof, check, main_case
from .cases import Case, Subject, bound_for
from .data import Array, noise, ragged, smooth, special
from .nvrtc import CompileFailed, Nvrtc, NvrtcMissing
from .report import Fault, NotHere
from .sanitized import Job, run_jobs, run_on_gpu
from .ways import Place, forward

#: what generated kernels must compile for
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100")


def _case(ctx: Context, subject: Subject) -> Case:
    case = main_case(subject)
    place = ctx.places.get("emulated")
    if place is None:
        raise NotHere("the lane emulator needs a host compiler, and there is none")
    if not _runs(case, place):
        raise NotHere(f"{case} runs no kernel of CUDA's form")
    return case


def _is_whole(case: Case, place: Place) -> bool:
    plan = case.on(place, "auto").plan
    return plan.forward.groups == plan.inverse.groups == (case.graph.order,)


def _runs(case: Case, place: Place) -> bool:
    plan = case.on(place, "auto").plan
    return bool(plan.forward.launches and plan.inverse.launches)


def jobs(ctx: Context, case: Case) -> list[Job]:
    """Return what is run under a sanitizer for a case."""
    pipe = bq.chain(*case.stages)
    sizes = (max(case.spans) + 3, case.chunk + 41) if max(case.spans) < case.chunk else (case.chunk - 5, case.chunk + 41)
    eb, mode = (case.bound.eb, case.bound.mode) if case.bound else (None, "abs")
    each = range(3) if ctx.full else (None,)
    return [Job(str(case), pipe.to_toml(), case.dtype, eb, mode, sizes, geometry) for geometry in each]


def _sanitized(ctx: Context, subject: Subject, sanitizer: str, what: str) -> Iterator[Proof]:
    alone, place = _case(ctx, subject), ctx.places.get("emulated")
    joined = [c for c in subject.cases if not c.alone and place is not None and _is_whole(c, place)]
    case = joined[0] if joined else alone
    done = 0
    every = jobs(ctx, case)
    if sanitizer == "address":  # words of another width take other ways through a policy
        others = [c for c in subject.alone if c.dtype != case.dtype and place is not None and _runs(c, place)]
        every += [job for c in {c.dtype: c for c in reversed(others)}.values() for job in jobs(ctx, c)[:1]]
    for job, said in run_jobs(sanitizer, every):
        if said:
            raise Fault(f"{job.title} in the lane emulator: {said}; {what}")
        done += 1
    yield Proof(("emulated",), f"{done} {'runs' if done > 1 else 'run'}")


@check("geometries")
def geometries(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Alone at every geometry, each lane a fiber, the policy makes the same codes, metadata and words, and no word too many."""
    stage, place = subject.stage, ctx.places.get("emulated")
    op = stage.fused_op()
    if op is None or WarpHarness.name not in op.strategies or op.geometry.get("element_form"):
        raise NotHere("its policy has one geometry, or none")
    if stage.fusion_spec().access is FusionAccess.LAYOUT:
        raise NotHere("a LAYOUT's policy holds no codes in its lanes: it says where they stand, and the chains run it")
    if place is None:
        raise NotHere("the lane emulator needs a host compiler, and there is none")
    host = next(p.target for p in ctx.places.kernels if p.target is not None and p.target.dialect == "c++")
    shown = 0
    for dtype in dict.fromkeys(c.fed for c in subject.cases):
        member, back = members_of(stage, dtype)
        probes = [Probe(member, back, g) for g in layouts(member)]
        if not ctx.full and len(probes) > 3:
            probes = [probes[0], probes[len(probes) // 2], probes[-1]]
        if not probes:
            raise NotHere(f"no lanes of a warp can hold its span of {member.spec.span}")
        policies = ProbedPolicies(f"{stage.name}-{dtype}", probes, host)
        for make in (ragged, noise, special):
            source = make(policies.count(0), dtype)
            params = _params(stage, member, source)
            first = policies.run(0, source, params)
            for number, probe in enumerate(probes):
                found = policies.run(number, source, params)
                where = f"policy {op.qualified} of {dtype} at {probe.geometry} (lanes x elements)"
                if is_coder(member):
                    _guarded(found, probe.room, where, op.include_header)
                if not found.same(first):
                    raise Fault(f"{where} makes something else than at {probes[0].geometry}: {_which(first, found)}")
                shown += 1
    yield Proof(("emulated",), f"{shown} runs")


def _params(stage: Stage, member: Member, source: Array) -> bytes:
    if member.op.params is None:
        return b""
    bound = bound_for((stage,), member.main_in.dtype)
    context = PrimeContext(source, member.types, bound, source.size, missing=stage.missing_values())
    return member.op.params.pack(stage.fused_params(dict(stage.prime_fused_forward_state(context)), member.types))


def _guarded(found: Outcome, room: int, where: str, header: str) -> None:
    """Raise where a coder wrote more words of a segment than its size says, or fewer."""
    table = np.frombuffer(found.made, np.uint32).reshape(-1, 2)
    segments = found.words[: len(table) * room].reshape(-1, room)
    beyond = np.arange(room) >= table[:, 1:]
    written = (segments != 0x01010101 * GUARD) & beyond
    if written.any() or (found.words[len(table) * room :] != 0x01010101 * GUARD).any():
        s = int(np.flatnonzero(written.any(axis=1))[0]) if written.any() else len(table) - 1
        raise Fault(f"{where} writes past segment {s}, which its size says has {table[s, 1]} words: pack in <{header}>")


def _which(a: Outcome, b: Outcome) -> str:
    if a.made != b.made:
        return "its forward output"
    return "the words" if not np.array_equal(a.words, b.words) else "its inverse"


@check("GPU compiler")
def gpu_compiler(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """The generated kernels compile for the supported architectures, through NVRTC, which needs no GPU."""
    try:
        library = Nvrtc()
    except NvrtcMissing as exc:
        raise NotHere(str(exc)) from exc
    case = _case(ctx, subject)
    cases = subject.cases if ctx.full else [case]
    for arch in ARCHITECTURES:
        worst: dict[str, int] = {}
        for c in cases:
            for source in sources_of(ctx, c):
                try:
                    _, kernels = library.compile(source.name, source.text, resolve_headers(source).texts, arch)
                except CompileFailed as exc:
                    raise Fault(f"{c} does not compile for {arch}: {exc}") from exc
                for used in kernels.values():
                    figures = {
                        "registers": used.registers,
                        "spilled": used.spill_stores + used.spill_loads,
                        "shared": used.shared,
                    }
                    worst = {name: max(n, worst.get(name, 0)) for name, n in figures.items()}
        said = (
            f"{worst['registers']} registers at most, {worst['spilled']} bytes spilled, {worst['shared']} bytes of shared memory"
        )
        yield Proof((arch,), said)


def sources_of(ctx: Context, case: Case) -> list[KernelSource]:
    """Return the CUDA sources of a case's kernels, both directions."""
    host = next(p.target for p in ctx.places.kernels if p.target is not None and p.target.dialect == "c++")
    recording = _Recording(host)
    place = Place("recording", recording, {h.name: h for h in discovery.registry().harnesses()})
    place.executable(case.graph, case.dtype, "auto").compile()
    return recording.sources


class _Recording(EmulatedTarget):
    """Keeps the sources that it is to compile."""

    def __init__(self, host: Target) -> None:
        super().__init__(host)
        self.sources: list[KernelSource] = []

    def compile(self, source: KernelSource) -> Module:
        self.sources.append(source)
        return Module()  # nobody calls it


@check("speed", full_only=True)
def speed(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Fused against staged, reported and not judged."""
    cases = [c for c in subject.cases if not c.alone and c.declares_policies]
    place = next((p for p in ctx.places.kernels if p.name != "emulated"), None)
    if not cases or place is None:
        raise NotHere("no chain that fuses, or no target that compiles")
    case = cases[0]
    x = smooth(256 * case.chunk, case.dtype)
    seconds = {}
    for fusion in ("off", "auto"):
        run = case.on(place, fusion)
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            forward(run, x, case.bound)
            times.append(time.perf_counter() - begin)
        seconds[fusion] = min(times[1:])
    rates = {fusion: x.nbytes / s / 1e9 for fusion, s in seconds.items()}
    yield Proof((place.name,), f"{case}: fused {rates['auto']:.2f} GB/s, staged {rates['off']:.2f} GB/s, one thread")


@check("races")
def races(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """No two lanes touch one place without a barrier in between (ThreadSanitizer, each lane a fiber)."""
    if not ctx.full and subject.stage.fusion_spec().access is FusionAccess.ELEMENTWISE:
        raise NotHere("lanes of an ELEMENTWISE policy share nothing; the full level looks all the same")
    yield from _sanitized(ctx, subject, "thread", "lanes read and write one place with no barrier in between")


@check("memory")
def memory(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """No lane reads or writes beyond its buffers, no arithmetic is undefined (AddressSanitizer and UBSan)."""
    yield from _sanitized(ctx, subject, "address", "a policy keeps to its span, its segment and its buffers")


@check("GPU sanitizer")
def gpu_sanitizer(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """On a GPU compute-sanitizer reports nothing (memcheck and racecheck; at level full synccheck and initcheck too)."""
    place = ctx.places.get("cuda")
    if place is None:
        raise NotHere(f"no GPU: {ctx.places.missing.get('cuda', 'the target cuda is not installed')}")
    case = main_case(subject)
    if not _runs(case, place):
        raise NotHere(f"{case} runs no kernel on a GPU")
    whole = next((c for c in subject.cases if not c.alone and _is_whole(c, place)), case)
    each = [replace(job, geometry=None) for job in jobs(ctx, whole)[:1]]
    for tool in ("memcheck", "racecheck", *(("synccheck", "initcheck") if ctx.full else ())):
        said = run_on_gpu(tool, each)
        if said:
            raise Fault(f"{whole} on cuda: {said}")
        yield Proof(("cuda",), f"{tool}: {whole}")

"""The same bytes everywhere: every place, fused and staged, against the NumPy reference, with the launches that were expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

import numpy as np

import briquette as bq
from briquette.errors import BriquetteError
from briquette.harness import GroupRun
from briquette.ports import INTEGER_DTYPES, Chunked
from briquette.record import RunRecord

from .base import Context, Proof, check, main_case
from .cases import Case, Subject
from .checks_numpy import judge, same_runs, there_and_back
from .data import Array, bits, first_difference, powers, ragged, same, smooth, special, ties
from .report import Fault, NotHere
from .ways import Place, Run, forward, inverse


def ways(ctx: Context, case: Case, slow: bool = True) -> Iterator[tuple[Place, str]]:
    """Yield the places and fusion modes in which a case is run beside the reference; the emulator fused only."""
    for place in ctx.places.kernels:
        if place.name == "emulated":
            if slow and _runs_kernels(case, place):
                yield place, "auto"
        elif case.alone:
            yield place, "auto"
        else:
            yield place, "auto"
            if ctx.full:
                yield place, "off"


def _runs_kernels(case: Case, place: Place) -> bool:
    plan = case.on(place, "auto").plan
    return bool(plan.forward.launches or plan.inverse.launches)


def compared(
    case: Case,
    x: Array,
    expected: Run,
    back: Array,
    which: Iterable[tuple[Place, str]],
    what: str,
    shape: tuple[int, ...] | None = None,
) -> set[str]:
    """Run `x`, the elements of an array of `shape`, everywhere and hold it to the reference; return the names of the places."""
    seen = set()
    for place, fusion in which:
        run, where = case.on(place, fusion), f"{what}, {place.name} with fusion {fusion} against the NumPy reference"
        made = forward(run, x, case.bound, shape=shape)
        same_runs(expected, made, _pointed(case, x, where))
        again = inverse(run, expected, x, shape=shape)
        if not same(again, back):
            raise Fault(f"{where}: decompression differs: {first_difference(back, again)}")
        seen.add(place.name)
    return seen


def _pointed(case: Case, x: Array, where: str) -> str:
    names = {s.name for s in case.stages}
    return f"{where} (policy and NumPy form of {case.stage.name} disagree)" if len(names) == 1 else where


def _swept(ctx: Context, subject: Subject, sizes: Any, fields: Any, slow: bool = True, cases: Any = None) -> tuple[set[str], int]:
    seen: set[str] = set()
    runs = 0
    for case in subject.cases if cases is None else cases:
        which = list(ways(ctx, case, slow))
        for n in sizes(case):
            for name, x in fields(case, n):
                expected, back = there_and_back(ctx, case, x, f"{case}, {name}, {_words(case, n)}")
                seen |= compared(case, x, expected, back, which, f"{case}, {name}, {_words(case, n)}")
                runs += 1
    return seen, runs


def _words(case: Case, n: int) -> str:
    rest = [f"the last span of {span} holds {n % span}" for span in dict.fromkeys(case.spans) if span > 1 and n % span]
    return f"{n} elements" + (f" ({', '.join(rest)})" if rest else "")


def _need_kernels(ctx: Context) -> None:
    if not ctx.places.kernels:
        raise NotHere("; ".join(f"{name}: {why}" for name, why in ctx.places.missing.items()))


@check("compiles")
def compiles(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Policies compile in both directions, with parameters laid out as declared."""
    _need_kernels(ctx)
    if subject.stage.fused_op() is None:
        raise NotHere("the stage has no policy")
    seen: dict[str, int] = {}
    for case in subject.cases:
        for place in ctx.places.kernels:
            if place.name == "emulated":
                continue
            try:
                case.on(place, "auto").compile()
            except BriquetteError as exc:
                raise Fault(f"{case} on {place.name}: {exc}") from exc
            seen[place.name] = seen.get(place.name, 0) + 1
    op = subject.stage.fused_op()
    layout = f", {op.params.size} bytes of parameters as laid out" if op is not None and op.params is not None else ""
    yield Proof(tuple(seen), f"{max(seen.values(), default=0)} chains{layout}")


@check("identity")
def identity(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Payload, state and reconstruction are the NumPy reference's on every target, fused, outputs poisoned; whole spans."""
    _need_kernels(ctx)

    def fields(case: Case, n: int) -> Iterator[tuple[str, Array]]:
        yield from ctx.fields(case, n)
        if case.bound is not None:
            yield from _tied(ctx, case, n)

    main_case(subject)
    seen, runs = _swept(ctx, subject, lambda case: (2 * case.chunk,), fields)
    yield Proof(tuple(sorted(seen)), f"{runs} fields in {len(subject.cases)} chains")


def _tied(ctx: Context, case: Case, n: int) -> Iterator[tuple[str, Array]]:
    """Yield values at the ties of the step that a head resolves, which rounding rules part on, and around its powers of two."""
    state = ctx.reference(case, smooth(n, case.dtype)).state()
    for held in state.values():
        step = held.get("quant_step")
        if isinstance(step, float) and 0 < step < 1e9 and case.dtype in ("float32", "float64"):
            yield "values halfway between codes", ties(n, case.dtype, step)
            yield "codes around powers of two", powers(n, case.dtype, step)
        elif type(step) is int and case.dtype in INTEGER_DTYPES:
            yield "codes around powers of two", powers(n, case.dtype, step)


#: of arrays with one and several axes, with and without elements left over, of more than one chunk among them
_SHAPES: Final = ((64, 48), (37, 101), (11, 13, 29), (8, 16, 8), (3, 5, 7, 11), (23, 40, 41))


@check("shapes")
def shapes(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Arrays of several axes: the reference's bytes everywhere; what does not read the shape makes the same of any."""
    _need_kernels(ctx)
    main_case(subject)
    seen: set[str] = set()
    cases = [*subject.alone[:1], *[c for c in subject.cases if not c.alone][:1]]
    for case in cases:
        reads = any(s.reads_shape for s in case.stages)
        for shape in _SHAPES if reads else _SHAPES[:1]:
            for make in (smooth, special):
                x = make(math.prod(shape), case.dtype)
                what = f"{case}, shape {shape}"
                expected, back = there_and_back(ctx, case, x, what, shape)
                if not reads:
                    flat = ctx.reference(case, x)
                    same_runs(flat, expected, f"{what}: the stage does not declare reads_shape, and makes something else of it")
                seen |= compared(case, x, expected, back, ways(ctx, case), what, shape)
    yield Proof((ctx.places.reference.name, *sorted(seen)), f"{len(cases)} chains")


@check("resolved")
def resolved(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """What a head resolves on a device from the data's extent is what prime_fused_forward_state and fused_params make of it."""
    op, seen, shown = subject.stage.fused_op(), set(), 0
    if op is None or not op.geometry.get("resolves"):
        raise NotHere("it declares no geometry resolves=1: what it needs of the data is worked out on the host")
    for case in (c for c in subject.alone if c.bound is not None):
        for place in (p for p in ctx.places.kernels if p.target is not None and p.target.dialect == "cuda"):
            run = case.on(place, "auto")
            (step,) = run.plan.forward.steps
            kind = run.plan.types[step.nodes[0]][case.stage.outputs[0]]
            memory, program = run.memory, cast(Any, run.program(step, "forward"))
            for name, x in ctx.fields(case, case.chunk + 9):
                source = x if memory is None else memory.upload(x)
                out = np.empty(x.size, kind.numpy) if memory is None else memory.empty(x.size, kind.dtype, source)
                of = run.lengths.stretch((x.size,))
                made = GroupRun(RunRecord(), x.size, run.plan.chunk, 1, case.bound, out=out, stretch=of)
                for field, device, host in program.resolved(source, made):
                    if device != host and repr(device) != repr(host):
                        raise Fault(
                            f"{case}, {name}, {place.name}: parameter {field} is {device!r} as the device resolves it, "
                            f"{host!r} by prime_fused_forward_state and fused_params"
                        )
                shown += 1
            seen.add(place.name)
    if not seen:
        raise NotHere("no place here runs CUDA kernels: the lane emulator needs a host compiler")
    yield Proof(tuple(sorted(seen)), f"{shown} runs")


@check("partial spans")
def residues(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """The last span may hold any number of elements: at the quick level those at its ends and a few."""
    case = main_case(subject)
    longest = max(span for c in subject.cases for span in c.spans)
    if longest == 1:
        raise NotHere("nothing that it is part of has a span of more than one element")
    picked = {1, 2, 3, 5, 31, 32, 33, longest // 2, longest // 2 + 1, longest - 2, longest - 1}
    few = sorted(picked & set(range(1, longest)))
    rests = list(range(1, longest)) if ctx.full or longest <= 32 else few

    def one(c: Case, n: int) -> Iterator[tuple[str, Array]]:
        yield "special values", special(n, c.dtype)
        yield "ragged", ragged(n, c.dtype)

    seen, runs = _swept(ctx, subject, lambda c: [longest + r for r in rests], one, slow=False, cases=[case])
    more, _ = _swept(ctx, subject, lambda c: [c.chunk + r for r in (rests[-1], rests[0])], one, slow=True)
    every = "every residue" if len(rests) == max(longest - 1, 1) else f"{len(rests)} residues"
    yield Proof(tuple(sorted({ctx.places.reference.name} | seen | more)), f"{every} of {longest}, {runs} runs")


@check("empty and tiny")
def tiny(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Streams of 0 to 5 elements."""

    def one(case: Case, n: int) -> Iterator[tuple[str, Array]]:
        yield "special values", special(n, case.dtype)
        yield "smooth", smooth(n, case.dtype)

    main_case(subject)
    small: list[Case] = list(subject.cases)
    for case in small:  # nothing is launched for no elements; the reference must still make something of them
        there_and_back(ctx, case, smooth(0, case.dtype), f"{case}, no elements")
    seen, _ = _swept(ctx, subject, lambda case: (1, 2, 3, 5), one, slow=ctx.full)
    yield Proof((ctx.places.reference.name, *sorted(seen)))


@check("alignment")
def alignment(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Input and output may begin at any byte within 16."""
    case = main_case(subject)
    n = case.chunk + 37
    x = special(n, case.dtype)
    expected, back = there_and_back(ctx, case, x, str(case))
    seen = set()
    for place, fusion in [(ctx.places.reference, "auto"), *ways(ctx, case, slow=ctx.full)]:
        run = case.on(place, fusion)
        for at in range(16):
            held = np.zeros(n * x.itemsize + 32, np.uint8)
            moved = held[at : at + n * x.itemsize].view(x.dtype)
            moved[:] = x
            where = f"{case}, input {at} bytes into 16, {place.name}"
            try:
                same_runs(expected, forward(run, moved, case.bound), where)
                out = np.full(n * x.itemsize + 32, 0xA5, np.uint8)
                to = out[at : at + n * x.itemsize].view(x.dtype)
                record = RunRecord(expected.state())
                found = run.inverse(dict(expected.values), record, n, 1, to)
            except BriquetteError as exc:
                raise Fault(f"{where}: {exc}") from exc
            if not same(np.array(found), back):
                raise Fault(f"{where}: decompression differs: {first_difference(back, np.array(found))}")
            if (out[:at] != 0xA5).any() or (out[at + n * x.itemsize :] != 0xA5).any():
                raise Fault(f"{where}: decompression writes beyond its output")
        seen.add(place.name)
    yield Proof(tuple(sorted(seen)), "16 offsets")


@check("determinism")
def determinism(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """The same bytes again, and on 1, 2 and 5 threads."""
    seen = set()
    for case in subject.cases:
        n = case.chunk * 9 + 77
        x = special(n, case.dtype)
        for place, fusion in [(ctx.places.reference, "off"), *ways(ctx, case, slow=False)]:
            run = case.on(place, fusion)
            first = forward(run, x, case.bound)
            for threads in (1, 1, 2, 5):
                again = forward(run, x, case.bound, threads)
                what = f"{case}, {place.name}, the same again on {threads} threads: its output is not deterministic"
                same_runs(first, again, what)
                y, z = inverse(run, first, x, threads), inverse(run, first, x)
                if not same(y, z):
                    raise Fault(f"{case}, {place.name}, decompression on {threads} threads differs: {first_difference(z, y)}")
            seen.add(place.name)
    main_case(subject)
    yield Proof(tuple(sorted(seen)), "1, 2 and 5 threads")


@check("16 threads")
def sixteen(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """One stage object serves 16 threads at once, each with data of its own."""
    case = main_case(subject)
    # the same size for all: what is kept from run to run by size would be shared
    fields = [smooth(2 * case.chunk + 5, case.dtype, seed) for seed in range(16)]
    seen = []
    for place, fusion in [(ctx.places.reference, "off"), *ways(ctx, case, slow=False)]:
        run = case.on(place, fusion)
        expected = [forward(run, x, case.bound) for x in fields]

        def work(i: int, run: Any = run, expected: Any = expected) -> str:
            for _ in range(3):
                made = forward(run, fields[i], case.bound)
                same_runs(expected[i], made, "")
                judge(case, fields[i], inverse(run, made, fields[i]), made, "")
            return ""

        with ThreadPoolExecutor(16) as pool:
            for future in [pool.submit(work, i) for i in range(16)]:
                try:
                    future.result()
                except Fault as exc:
                    raise Fault(f"{case}, {place.name}: with 16 threads on one stage, one sees another's data {exc}") from exc
        seen.append(place.name)
    yield Proof(tuple(seen))


@check("archive and TOML")
def archive(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Archives are the same bytes from every target and mode, decode everywhere, and TOML builds the same pipeline."""
    seen = set()
    for case in [c for c in (subject.main, next((c for c in reversed(subject.cases) if not c.alone), None)) if c is not None]:
        pipe = bq.chain(*case.stages)
        text = pipe.to_toml()
        if bq.Pipeline.from_toml(text) != pipe:
            raise Fault(f"{case}: the pipeline that TOML builds is another one:\n{text}")
        x = smooth(3 * case.chunk + 21, case.dtype).reshape(3, -1)
        blobs: dict[bytes, str] = {}
        where = [("numpy", "off"), ("numpy", "auto")]
        where += [(p.name, f) for p in ctx.places.kernels if p.name != "emulated" for f in ("off", "auto")]
        for target, fusion in where:
            made = bq.compress_run(x, pipeline=bq.Pipeline.from_toml(text), target=target, fusion=fusion, **case.bound_given)
            blobs.setdefault(bytes(made.archive), f"{target} with fusion {fusion}")
            seen.add(target)
        if len(blobs) > 1:
            a, b = list(blobs)[:2]
            raise Fault(f"{case}: the archives of {blobs[a]} and {blobs[b]} differ ({len(a)} and {len(b)} bytes)")
        (blob,) = blobs
        backs = {}
        for target, fusion in where:
            backs[bits(bq.decompress(blob, target=target, fusion=fusion)).tobytes()] = target
        if len(backs) > 1:
            raise Fault(f"{case}: {' and '.join(backs.values())} decode one archive to different values")
        ctx.shared.setdefault("archives", {})[str(case)] = (subject.title, blob, next(iter(backs)))
    if not seen:
        main_case(subject)
    yield Proof(tuple(sorted(seen)), "fusion off and auto")


def payload(made: Run) -> int:
    """Return the bytes of a run's values."""
    return sum(v.nbytes if isinstance(v, Chunked) else np.asarray(v).nbytes for v in made.values.values())

"""The NumPy form: inverse, state, role, cost, room. It is the oracle, so it is looked at before anything is compared with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np

from briquette.bounds import compare, resolve
from briquette.declare import FusionAccess
from briquette.layouts import Lengths, Stretch
from briquette.ports import Chunked, PortValue, numpy_dtype
from briquette.record import Bound
from briquette.stage import PrimeContext, Scope, Stage

from .base import Context, Proof, check, main_case
from .cases import Case, Subject, is_head
from .data import Array, bits, first_difference, noise, ragged, same, smooth, special
from .report import Fault, NotHere
from .ways import Run, forward, inverse


def judge(case: Case, x: Array, y: Array, made: Run, what: str) -> None:
    """Hold a reconstruction to the input: bit for bit, or exactly within the bound.

    Raises
    ------
    Fault
    """
    if case.lossless:
        if (bits(x) != bits(y)).any():
            raise Fault(f"{what}: the inverse does not undo forward, which no bound lets it: {first_difference(x, y)}")
        return
    assert case.bound is not None
    missing = tuple(v for s in case.stages for v in s.missing_values())
    eb = resolve(case.bound, x, missing)
    report = compare(x, y, eb, point_wise=case.bound.mode == "pwrel", missing=missing)
    if not report.ok:
        i = report.first_violation
        kind = "NaN, infinities or missing values changed" if report.specials_changed else "values miss the bound"
        count = report.specials_changed or report.violations
        raise Fault(
            f"{what}: {count} {kind} (bound {eb!r}), the first at element {i}: {x[i]!r} came back as {y[i]!r}; what the inverse "
            f"needs of a run must be resolved by prime_fused_forward_state, what no code holds must be kept aside. "
            f"State of the run: {made.state()}"
        )


def there_and_back(ctx: Context, case: Case, x: Array, what: str, shape: tuple[int, ...] | None = None) -> tuple[Run, Array]:
    """Run the reference forward, and back with stages made anew from parameters and state."""
    made = ctx.reference(case, x, shape=shape)
    back = inverse(case.on(ctx.places.reference, "off", fresh=True), made, x, shape=shape)
    judge(case, x, back, made, what)
    return made, back


@check("inverse")
def inverts(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """The NumPy inverse gives the input back, exactly or within the bound, from parameters, state and ports alone."""
    tried = 0
    for case in subject.cases:
        n = case.chunk * 2
        for name, x in ctx.fields(case, n):
            there_and_back(ctx, case, x, f"{case}, {name}, {x.size} elements, whole spans")
            tried += 1
    if not tried:
        main_case(subject)
    yield Proof((ctx.places.reference.name,), f"{tried} fields in {len(subject.cases)} chains")


@check("state")
def state(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Nothing of a run is kept in the stage: it lies in the run's state, and runs do not see one another."""
    case = main_case(subject)
    # stages made anew: what other checks have left behind would hide what a run leaves
    case = Case(tuple(type(s).from_parameters(s.parameters()) for s in case.stages), case.dtype, case.bound, case.about)
    before = dict(vars(case.stage))
    n = case.chunk + 40
    first, second = smooth(n, case.dtype), ragged(n, case.dtype)
    made = ctx.reference(case, first)
    if is_head(case.stage) and case.bound is not None and not made.record.state:
        raise Fault(
            "the stage works under a bound and prime_fused_forward_state resolves nothing: "
            "its inverse, which reads parameters and state alone, cannot know the bound"
        )
    cached = {n for c in type(case.stage).__mro__ for n, v in vars(c).items() if isinstance(v, cached_property)}
    changed = sorted(k for k, v in vars(case.stage).items() if k not in cached and (k not in before or before[k] is not v))
    if changed:
        raise Fault(f"a run changes the stage object: {', '.join(changed)}; what a run resolves goes to its state")
    other = Bound(case.bound.eb * 3, case.bound.mode) if case.bound is not None else None
    ctx.reference(case, second, other)
    back = inverse(case.on(ctx.places.reference, "off"), made, first)
    judge(case, first, back, made, f"{case}, another run in between: something outlives a run in the stage or its module")
    again = ctx.reference(case, first)
    if again.state() != made.state():
        raise Fault(f"the state of the same run differs the second time: {made.state()} and {again.state()}")
    yield Proof((ctx.places.reference.name,))


def scope_of(case: Case, of: int | Stretch, chunk: int, run_state: Mapping[str, Any], tail: Any = None) -> Scope:
    """Return a scope for a part of an array, or for a 1-D array of so many elements."""
    (node,) = case.graph.order
    stretch = Lengths(case.graph, chunk).of(of)
    return Scope(run_state, case.graph.types(case.dtype)[node], stretch.count, chunk, tail=tail, stretch=stretch)


def _primed(stage: Stage, case: Case, x: Array, shape: tuple[int, ...] = ()) -> dict[str, Any]:
    types, missing = next(iter(case.graph.types(case.dtype).values())), stage.missing_values()
    context = PrimeContext(x, types, case.bound, x.size, missing=missing, chunk=case.chunk, shape=shape or (x.size,))
    return dict(stage.prime_fused_forward_state(context))


def _pieces(value: PortValue, chunk: int, count: int) -> list[bytes]:
    """Return what belongs to each chunk, as bytes."""
    if isinstance(value, Chunked):
        return [value.cut(i, i + 1).words.tobytes() for i in range(value.sizes.size)]
    return [np.ascontiguousarray(value[at : at + chunk]).tobytes() for at in range(0, count, chunk)]


@check("role")
def role(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Changing one element changes what the declared role lets it change, and nothing else, in both directions."""
    stage = subject.stage
    spec = stage.fusion_spec()
    if not spec.fusable:
        raise NotHere("UNFUSABLE: it may look at anything")
    if not subject.alone:
        raise NotHere("a selector's choice depends on the coder behind it, and its tiles are compared in the chains")
    if spec.access is FusionAccess.LAYOUT:
        shapes = sum(_moves(stage, case, shape) for case in subject.alone for shape in _SHAPES)
        yield Proof((ctx.places.reference.name,), f"{shapes} shapes: each element once as itself, padding as its places say")
        return
    probes = 0
    for case in subject.alone:
        span = case.spans[0]
        n = span * 8 if span > 1 else 64
        for make in (smooth, ragged, special):
            probes += _probe(stage, case, make(n, case.dtype), span, n)
    words = "an element" if spec.access is FusionAccess.ELEMENTWISE else f"a span of {spec.span} {spec.unit}"
    yield Proof((ctx.places.reference.name,), f"{probes} changes, none seen outside {words}")


#: of arrays that a LAYOUT is shown, with and without elements left over
_SHAPES: Final = ((1,), (1000,), (64, 48), (37, 101), (11, 1, 29), (8, 16, 8), (3, 5, 7, 11))


def _moves(stage: Stage, case: Case, shape: tuple[int, ...]) -> int:
    """Hold a LAYOUT's two directions, of all of an array and of parts of it, to what its `places` and `covering` say."""
    lengths, n = Lengths(case.graph, case.chunk), math.prod(shape)
    x = noise(n, case.dtype)
    run_state, of = _primed(stage, case, x, shape), lengths.stretch(shape)
    assert of.layout is not None
    at, itself = of.layout.places(0, of.layout.count)
    if not np.array_equal(np.sort(at[itself]), np.arange(n)):
        raise Fault(f"shape {shape}: its places do not hold every element of the array once as itself")
    made = np.asarray(stage.forward({stage.inputs[0]: _held(x)}, scope_of(case, of, case.chunk, run_state))[stage.outputs[0]])
    if not same(made, x[at]):
        raise Fault(f"shape {shape}: forward lays out other elements than its places say: {first_difference(x[at], made)}")
    spoiled = np.where(itself, made, ~made)
    for begin, end in {(0, n), (n // 3, n // 3 + 1), (n // 2, n)}:
        part = lengths.stretch(shape, begin, end)
        read = _held(spoiled[part.laid_begin : part.laid_end])
        back = np.asarray(stage.inverse({stage.outputs[0]: read}, scope_of(case, part, case.chunk, run_state))[stage.inputs[0]])
        if not same(back, x[begin:end]):
            wrong = first_difference(x[begin:end], back)
            raise Fault(f"shape {shape}, elements {begin} to {end - 1}: the inverse takes others, or takes padding: {wrong}")
    return 1


def _probe(stage: Stage, case: Case, x: Array, span: int, n: int) -> int:
    run_state = _primed(stage, case, x)
    scope = scope_of(case, n, span, run_state)
    rng = np.random.default_rng(n)
    made = stage.forward({stage.inputs[0]: _held(x)}, scope)
    main = made[stage.outputs[0]]
    spans = sorted({0, 1, n // span - 1, *rng.integers(0, n // span, 3).tolist()})
    outside = noise(n, case.dtype)
    for s in spans:
        for i in {s * span, s * span + span - 1, s * span + int(rng.integers(0, span))}:
            y = x.copy()
            y[i] = outside[i] if not same(outside[i : i + 1], x[i : i + 1]) else x[(i + 1) % n]
            after = stage.forward({stage.inputs[0]: _held(y)}, scope)
            for port in stage.outputs:
                before, now = _pieces(made[port], span, n), _pieces(after[port], span, n)
                moved = [k for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b and k != s]
                if moved:
                    raise Fault(_across(stage, "forward", i, s, moved[0], span, port))
    if isinstance(main, Chunked):
        return len(spans) * 3
    given = dict(made)
    before = _pieces(stage.inverse(given, scope)[stage.inputs[0]], span, n)
    for s in spans:
        turned = np.array(main)
        turned[s * span] = noise(n, turned.dtype.name, 5)[s]
        now = _pieces(stage.inverse({**given, stage.outputs[0]: turned}, scope)[stage.inputs[0]], span, n)
        moved = [k for k, (a, b) in enumerate(zip(before, now, strict=True)) if a != b and k != s]
        if moved:
            raise Fault(_across(stage, "inverse", s * span, s, moved[0], span, stage.inputs[0]))
    return len(spans) * 4


def _across(stage: Stage, direction: str, i: int, s: int, moved: int, span: int, port: str) -> str:
    role = stage.fusion_spec().access.name
    if span == 1:
        return f"declared {role}, and {direction} looks at neighbours: changing element {i} changes {port!r} at element {moved}"
    return (
        f"declared {role} over {span} elements, and {direction} reads across: changing element {i}, of span {s}, changes "
        f"{port!r} in span {moved}"
    )


def _held(x: Array) -> Array:
    held = np.array(x)
    held.flags.writeable = False
    return held


@check("pieces")
def pieces(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Runs of whole chunks give what the whole stream gives, in both directions."""
    shown = 0
    for case in subject.cases:
        if not all(s.fusion_spec().fusable for s in case.stages):
            continue
        n = case.chunk * 5 + case.chunk // 3 + 1
        x = special(n, case.dtype)
        whole, walked = case.on(ctx.places.reference, "off"), case.on(ctx.places.reference, "auto")
        a, b = forward(whole, x, case.bound), forward(walked, x, case.bound)
        _same_runs(a, b, f"{case}, walked in pieces")
        shown += 1
        if not case.alone or case.stage.fusion_spec().access is FusionAccess.LAYOUT:  # whose forward sees all of the array
            continue
        stage, (node,) = case.stage, case.graph.order
        scope = scope_of(case, n, case.chunk, a.state().get(node, {}))
        parts: list[Mapping[str, PortValue]] = []
        for begin in range(0, n, 2 * case.chunk):
            part = _held(x[begin : begin + 2 * case.chunk])
            parts.append(stage.forward({stage.inputs[0]: part}, scope_of(case, part.size, case.chunk, scope.state)))
        for port in stage.outputs:
            joined = _joined([p[port] for p in parts])
            _same_values(a.values[node, port], joined, f"{case}: output {port!r} of two chunks at a time against the whole")
    if not shown:
        raise NotHere("UNFUSABLE stages always see the whole stream")
    yield Proof((ctx.places.reference.name,))


def _joined(parts: list[PortValue]) -> PortValue:
    if isinstance(parts[0], Chunked):
        return Chunked.concatenate([p for p in parts if isinstance(p, Chunked)])
    return np.concatenate([np.asarray(p) for p in parts])


def _same_values(a: PortValue, b: PortValue, what: str) -> None:
    if isinstance(a, Chunked) and isinstance(b, Chunked):
        pairs: list[tuple[Any, Any, str]] = [(a.sizes, b.sizes, "chunk sizes"), (a.words, b.words, "words")]
    elif isinstance(a, Chunked) or isinstance(b, Chunked):
        raise Fault(f"{what}: one is chunked, the other a stream")
    else:
        pairs = [(a, b, "elements")]
    for left, right, kind in pairs:
        if not same(np.asarray(left), np.asarray(right)):
            raise Fault(f"{what}: {kind} differ: {first_difference(np.asarray(left), np.asarray(right))}")


def _same_runs(a: Run, b: Run, what: str) -> None:
    if a.state() != b.state():
        raise Fault(f"{what}: the state differs: {a.state()} against {b.state()}")
    for port, value in a.values.items():
        _same_values(value, b.values[port], f"{what}, {port[0]}.{port[1]}")


same_runs = _same_runs


@check("cost and room")
def cost(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """A coder's `cost` is what its segments take, and no chunk takes more words than max_chunk_words says."""
    stage, shown = subject.stage, []
    for case in subject.alone:
        types = next(iter(case.graph.types(case.dtype).values()))
        chunked = [p for p in stage.outputs if types[p].layout == "chunked"]
        for name, x in [*ctx.fields(case, 3 * case.chunk + 11), ("any bits", noise(2 * case.chunk, case.dtype))]:
            made = ctx.reference(case, x)
            for port in chunked:
                value = made.values[case.graph.order[0], port]
                assert isinstance(value, Chunked)
                room = stage.max_chunk_words(port, types, case.chunk)
                most = int(value.sizes.max()) if value.sizes.size else 0
                if most > room:
                    raise Fault(f"{case}, {name}: a chunk of {port!r} takes {most} words, max_chunk_words says {room}")
        if chunked:
            shown.append("room")
        if stage.fusion_spec().access is FusionAccess.SEGMENT_CODEC and type(stage).cost is not Stage.cost:
            _exact_cost(stage, case)
            shown.append("cost")
    if not shown:
        raise NotHere("it has no chunked output")
    yield Proof((ctx.places.reference.name,), " and ".join(dict.fromkeys(shown)))


def _exact_cost(stage: Stage, case: Case) -> None:
    """With chunks of one segment, a chunk's words less the metadata are the segment's."""
    span = case.spans[0]
    for make in (smooth, ragged, noise):
        for n in (span * 40, span * 3 + span // 2 + 1):
            x = make(n, case.dtype)
            scope = scope_of(case, n, span, _primed(stage, case, x))
            value = stage.forward({stage.inputs[0]: _held(x)}, scope)[stage.outputs[0]]
            assert isinstance(value, Chunked)
            told = np.asarray(stage.cost(_held(x), scope))
            if told.shape != value.sizes.shape:
                raise Fault(f"cost of {n} elements tells of {told.size} segments, there are {value.sizes.size} of {span}")
            rest = value.sizes.astype(np.int64) - told
            if rest.min() < 0 or rest.max() > 1 or rest.min() != rest.max():
                at = int(np.flatnonzero((rest < 0) | (rest > 1) | (rest != rest[0]))[0])
                raise Fault(
                    f"cost says {told[at]} words for segment {at} of {case}, forward makes {value.sizes[at]} of it with its "
                    f"metadata: a selector would choose by wrong figures"
                )


@check("types")
def types(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """The NumPy form gives what output_types declares, and gives back the type it took."""
    for case in subject.alone:
        x = smooth(case.chunk + 9, case.dtype)
        made = ctx.reference(case, x)  # the executor holds each value to its declared type
        (node,) = case.graph.order
        stage = case.stage
        scope = scope_of(case, x.size, case.chunk, made.state().get(node, {}))
        found = stage.forward({stage.inputs[0]: _held(x)}, scope)
        extra = set(found) - set(stage.outputs)
        if extra:
            raise Fault(f"forward gives {', '.join(sorted(extra))}, which is not among its outputs {stage.outputs}: undeclared")
        back = np.asarray(stage.inverse(dict(found), scope)[stage.inputs[0]])
        if back.dtype != numpy_dtype(case.dtype) or back.shape != x.shape:
            raise Fault(f"the inverse gives {back.dtype} of shape {back.shape}, its input was {x.dtype} of shape {x.shape}")
    yield Proof((ctx.places.reference.name,), ", ".join(c.dtype for c in subject.alone))

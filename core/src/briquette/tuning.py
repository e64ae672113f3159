"""Chooses among the geometries in which a harness can compile a group by measuring them, once, when asked to.

Geometries change no byte of an archive: whoever measures compares what every candidate makes with what the harness's own
choice makes. What was fastest is remembered as an entry of the compile cache (`briquette.cache`), so that it is written
atomically, checked when read, found in the read-only shared layer too, and dropped like any other entry. Its key is made of
the generated source with its headers, the candidates, the harness, and the target's identity (processor or device, compiler).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import discovery
from .archive.layout import BLOCK
from .cache import Cache, cache_key
from .errors import DeclarationError
from .harness import Direction, Geometry, GroupProgram, Harness, Member
from .ports import Chunked, Scratch
from .record import Bound, RunRecord
from .sources import resolve_headers
from .target import Target

if TYPE_CHECKING:
    from .executor import Executable
    from .plan import Step

#: rounds of measuring, each candidate once a round; then twice as many of the best few, and more while there is time
ROUNDS: Final = 5
_FINALISTS: Final = 3
_SECONDS: Final = 0.5
_MOST_ROUNDS: Final = 50
#: another geometry must take less than this share of the time of the harness's own choice
_WORTH: Final = 0.97


@dataclass(frozen=True)
class Choice:
    """What was measured for one group in one direction.

    Attributes
    ----------
    nodes : tuple of str
    direction : {"forward", "inverse"}
    chosen, default : str
        Settings of a geometry; `default` is the harness's own choice.
    seconds : dict of str to float
        The shortest whole run with each candidate.
    kept : bool
        Whether it will be remembered; False where there is no cache directory to write to.
    """

    nodes: tuple[str, ...]
    direction: Direction
    chosen: str
    default: str
    seconds: dict[str, float]
    kept: bool

    @property
    def gain(self) -> float:
        """How many times faster the chosen geometry runs than the harness's own choice."""
        return self.seconds[self.default] / self.seconds[self.chosen]


@dataclass(frozen=True)
class TuneReport:
    """What `Pipeline.tune` measured and chose; no choices where no group has any."""

    target: str
    elements: int
    choices: tuple[Choice, ...]

    def explain(self) -> str:
        """Return the report in words, a line for each candidate."""
        lines = [f"target {self.target}, {self.elements:,} elements"]
        for choice in self.choices:
            what = f"{choice.direction} of {' + '.join(choice.nodes)}"
            lines.append(f"{what}: {choice.chosen}, {choice.gain:.2f} times as fast as {choice.default}")
            for name, seconds in choice.seconds.items():
                lines.append(f"  {name}: {1e3 * seconds:.3f} ms{'  <-' if name == choice.chosen else ''}")
            if not choice.kept:
                lines.append("  not remembered: the cache of compiled code cannot be written to")
        return "\n".join(lines if self.choices else [*lines, "no group has a choice of geometry"])


def program(
    harness: Harness, members: Sequence[Member], direction: Direction, target: Target, chunk: int, geometry: Geometry | None
) -> GroupProgram:
    """Return the program of a chain at a geometry; a harness that offers none is never handed one."""
    if geometry is None:
        return harness.program(members, direction, target, chunk)
    return harness.program(members, direction, target, chunk, geometry)


def composed(run: Executable, step: Step, direction: Direction, target: Target) -> GroupProgram:
    """Return the program of a step: that of its harness, at the geometry that is remembered, or the one its stage brings."""
    chunk = run.plan.chunk
    if step.harness:
        members, harness = run.members(step, direction), run.harnesses[step.harness]
        return program(harness, members, direction, target, chunk, remembered(harness, members, direction, target, chunk))
    (node,) = step.nodes
    types = run.plan.types[node]
    kernel = run.graph.nodes[node].staged_kernel(direction, target.dialect, types)
    assert kernel is not None  # the planner has asked
    return target.adapt(kernel(node, types, target, chunk))


def remembered(harness: Harness, members: Sequence[Member], direction: Direction, target: Target, chunk: int) -> Geometry | None:
    """Return the geometry that was found fastest here; None where nothing was measured, or BRIQUETTE_TUNE is 0."""
    if discovery.settings().tune is False or Cache.from_environment().get(_any_key()) is None:
        return None
    candidates = harness.geometries(members, direction, target, chunk)
    return _recalled(candidates, _key(harness, candidates, target)) if len(candidates) > 1 else None


def _recalled(candidates: Sequence[Geometry], key: str) -> Geometry | None:
    entry = Cache.from_environment().get(key)
    try:
        settings = json.loads(entry)["chosen"] if entry is not None else None
    except (ValueError, LookupError, TypeError):  # not what `_keep` writes: as if it were not there
        return None
    return next((c for c in candidates if dict(c.settings) == settings), None)


def _any_key() -> str:
    """Return the key of an entry that is there once anything has been tuned: until then nobody composes sources to look it up."""
    return cache_key({"kind": "geometry"})


def _key(harness: Harness, candidates: Sequence[Geometry], target: Target) -> str:
    source = candidates[0].source
    return cache_key(
        {
            "kind": "geometry",
            "source": source.text,
            "headers": resolve_headers(source).texts,
            "candidates": [list(map(list, c.settings)) for c in candidates],
            "harness": (harness.name, harness.geometry_version),
            "target": target.name,
            "identity": target.identity(),
        }
    )


def tune(
    run: Executable, flat: Any, bound: Bound | None, threads: int, again: bool = True, shape: tuple[int, ...] | None = None
) -> TuneReport:
    """Measure every geometry of every group of a plan on the elements `flat`, keep the fastest, and have `run` use it.

    Parameters
    ----------
    flat : 1-D array
    shape : tuple of int, optional
        That of the array whose elements these are; default: 1-D.
        Of NumPy or of the target's memory.
    again : bool
        Whether to measure what is remembered already.

    Raises
    ------
    DeclarationError
        Two geometries of a harness make different bytes.
    """
    found: list[Choice] = []
    target = run.target
    if target is None:
        return TuneReport("numpy", flat.size, ())
    run.check_bound(bound)
    if target.memory is not None and isinstance(flat, np.ndarray):
        flat = target.memory.upload(flat)
    for plan in (run.plan.forward, run.plan.inverse):
        for step in plan.steps:
            if step.kind != "numpy":
                choice = _tuned(run, step, plan.direction, flat, shape, bound, threads, again)
                found += [choice] if choice is not None else []
    return TuneReport(target.name, flat.size, tuple(found))


def _tuned(
    run: Executable,
    step: Step,
    direction: Direction,
    flat: Any,
    shape: tuple[int, ...] | None,
    bound: Bound | None,
    threads: int,
    again: bool,
) -> Choice | None:
    if not step.harness:  # a stage's own program has one form
        return None
    harness, members, target, chunk = run.harnesses[step.harness], run.members(step, direction), run.target, run.plan.chunk
    assert target is not None
    candidates = harness.geometries(members, direction, target, chunk)
    if len(candidates) < 2:
        return None
    key = _key(harness, candidates, target)
    if not again and _recalled(candidates, key) is not None:
        return None
    programs = [program(harness, members, direction, target, chunk, c) for c in candidates]
    trial = run.apart()
    work = (_forward if direction == "forward" else _inverse)(trial, flat, shape, bound, threads)
    _compare(trial, step, direction, harness, candidates, programs, work)
    best = _race(trial, step, direction, programs, work)
    at = min(range(len(best)), key=best.__getitem__)
    at = at if best[at] < _WORTH * best[0] else 0
    run.install(step, direction, programs[at])
    seconds = {str(c): s for c, s in zip(candidates, best, strict=True)}
    entry = {"chosen": dict(candidates[at].settings), "seconds": seconds, "elements": int(flat.size)}
    cache = Cache.from_environment()
    kept = cache.put(key, json.dumps(entry).encode()) and cache.put(_any_key(), b"")
    return Choice(step.nodes, direction, str(candidates[at]), str(candidates[0]), seconds, kept)


def once(run: Executable, flat: Any, bound: Bound | None, threads: int, shape: tuple[int, ...] | None = None) -> None:
    """Tune on an array that is to be compressed, where that is asked for (BRIQUETTE_TUNE=1), unless all is remembered.

    An array of less than a checksum block is too small to tell anything.
    """
    if not run.tuned and flat.size >= BLOCK * run.plan.chunk and discovery.settings().tune:
        run.tuned = True
        tune(run, flat, bound, threads, again=False, shape=shape)


def _forward(
    trial: Executable, flat: Any, shape: tuple[int, ...] | None, bound: Bound | None, threads: int
) -> Callable[[], list[Any]]:
    """Return what compresses once and returns the arrays it made; the payload's memory is used again and again."""
    held: list[Scratch] = []

    def sink(record: RunRecord, chunks: int, words: int) -> Scratch:
        if not held:
            held.append(Scratch(np.empty(chunks, np.uint32), np.empty(words, np.uint32)))
        return held[0]

    def work() -> list[Any]:
        _, values = trial.forward(flat, bound, threads, sink if trial.memory is None else None, shape)
        arrays: list[Any] = []
        for value in values.values():
            arrays += [value.sizes, value.words] if isinstance(value, Chunked) else [value]
        return arrays

    return work


def _inverse(
    trial: Executable, flat: Any, shape: tuple[int, ...] | None, bound: Bound | None, threads: int
) -> Callable[[], list[Any]]:
    """Return what decompresses once and returns the array."""
    record, values = trial.forward(flat, bound, threads, shape=shape)
    memory = trial.memory
    out = np.empty_like(flat) if memory is None else memory.empty(flat.size, flat.dtype.name, flat)
    of = trial.lengths.stretch((flat.size,) if shape is None else shape)
    return lambda: [trial.inverse(values, record, of, threads, out)]


def _compare(
    trial: Executable,
    step: Step,
    direction: Direction,
    harness: Harness,
    candidates: Sequence[Geometry],
    programs: Sequence[GroupProgram],
    work: Callable[[], list[Any]],
) -> None:
    """Run each program once, which warms it up, and compare what it makes with what the first makes, bit for bit."""
    own: list[bytes] = []
    for candidate, each in zip(candidates, programs, strict=True):
        trial.install(step, direction, each)
        made = [np.asarray(trial.to_host(array)).tobytes() for array in work()]
        own = own or made
        if made != own:
            raise DeclarationError(
                f"harness {harness.name!r} makes other bytes of {' + '.join(step.nodes)} ({direction}) with {candidate} "
                f"than with {candidates[0]}; a geometry may change nothing but speed"
            )


def _race(
    trial: Executable, step: Step, direction: Direction, programs: Sequence[GroupProgram], work: Callable[[], list[Any]]
) -> list[float]:
    """Return the shortest time of each program: they run in turn, so that what disturbs the machine disturbs all alike."""
    best = [math.inf] * len(programs)

    def turn(running: Sequence[int]) -> None:
        for i in running:
            trial.install(step, direction, programs[i])
            begin = time.perf_counter()
            work()
            best[i] = min(best[i], time.perf_counter() - begin)

    for _ in range(ROUNDS):
        turn(range(len(programs)))
    # those that may win, and the one they must beat, run on
    final = sorted({0, *sorted(range(len(programs)), key=best.__getitem__)[:_FINALISTS]})
    end, rounds = time.perf_counter() + _SECONDS, 0
    while rounds < 2 * ROUNDS or (rounds < _MOST_ROUNDS and time.perf_counter() < end):
        turn(final)
        rounds += 1
    return best

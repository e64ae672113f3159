"""Finds the error bound that gives a ratio or a PSNR: on a sample first, then on the whole array, which decides.

A sample is of whole archive chunks, which code the same wherever they stand, one from each of equal strata of the array;
an array of no more than `SAMPLE` elements is its own sample. There the root is sought in the logarithm of the bound. The
bound found is tried on the whole array; where that misses the tolerance, the sample is asked again with what the whole has
shown it to be off by. So the search costs about one run on the whole, and at most `WHOLE_RUNS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import bounds
from ._names import shown
from .api import archived, decompress
from .archive import raw_size
from .archived import header_for
from .arrays import Source
from .errors import Unreachable, UsageError
from .executor import Executable
from .pipeline import Pipeline
from .ports import CARRIED_AS, Chunked
from .record import Bound, RunRecord
from .selection import REFERENCE, choose_target

#: elements of a sample, about; at least one chunk
SAMPLE: Final = 1 << 19
#: runs on the whole array, at most
WHOLE_RUNS: Final = 12
#: stands for the bound until it is known
PLACEHOLDER: Final = 0.1
#: how far off a result may be: a share of the ratio, dB of the PSNR
RATIO_TOLERANCE: Final = 0.03
PSNR_TOLERANCE: Final = 0.5
#: the smallest bound tried is the largest, the range, times 2**-64: below what float64 can tell
_DEPTH: Final = 64 * math.log(2.0)
_STEPS: Final = 64
#: elements of a sample's box along an axis, a multiple of the edges of tiles
_EDGE: Final = 64
#: two bounds nearer than this (in the logarithm) have nothing between them
_NARROW: Final = 1e-6

#: record, archive, and whether it holds the data raw
Made: TypeAlias = tuple[RunRecord, memoryview, bool]


@dataclass(frozen=True)
class Goal:
    """What the bound is to give: a ratio, or a PSNR in dB."""

    kind: Literal["ratio", "psnr"]
    value: float

    @property
    def height(self) -> float:
        return self.of(self.value)

    @property
    def close(self) -> float:
        """The tolerance, in heights."""
        return math.log1p(RATIO_TOLERANCE) if self.kind == "ratio" else PSNR_TOLERANCE

    def of(self, achieved: float) -> float:
        """Return a ratio or PSNR as a height, which grows with the bound."""
        return math.log(achieved) if self.kind == "ratio" else -achieved

    def met(self, achieved: float) -> bool:
        if self.kind == "ratio":
            return abs(achieved / self.value - 1.0) <= RATIO_TOLERANCE
        return abs(achieved - self.value) <= PSNR_TOLERANCE

    def words(self, achieved: float) -> str:
        if self.kind == "ratio":
            return f"a ratio of {achieved:.4g}"
        return "no error at all" if achieved == math.inf else f"{achieved:.2f} dB"


@dataclass(frozen=True)
class Search:
    """How the bound of a run was found.

    Attributes
    ----------
    kind : {"ratio", "psnr"}
    wanted, achieved : float
        Ratio, or PSNR in dB; `achieved` is that of the whole array.
    bound : Bound
        As the archive holds it.
    sample_elements : int
        Elements of the sample; all there are where the array is small.
    sample_runs, whole_runs : int
        Bounds tried on the sample and on the whole array.
    """

    kind: Literal["ratio", "psnr"]
    wanted: float
    achieved: float
    bound: Bound
    sample_elements: int
    sample_runs: int
    whole_runs: int


def goal_of(target_ratio: object, target_psnr: object, eb: object) -> Goal:
    """Return the goal that the caller named, one of the two.

    Raises
    ------
    UsageError
        Where both are given, or one beside a bound; where it is no positive finite number.
    """
    if eb is not None or (target_ratio is not None and target_psnr is not None):
        raise UsageError("give one of eb=, target_ratio= and target_psnr=: each of them settles the bound")
    name, given = ("target_ratio", target_ratio) if target_ratio is not None else ("target_psnr", target_psnr)
    try:
        value = math.nan if isinstance(given, (bool, np.bool_)) else float(given)  # type: ignore[arg-type]
    except Exception:  # __float__ may be foreign code
        value = math.nan
    if not (math.isfinite(value) and value > 0.0):
        example = "10" if name == "target_ratio" else "60 (dB)"
        raise UsageError(f"{name}={shown(given)} must be a finite number greater than zero, such as {example}")
    return Goal("ratio" if name == "target_ratio" else "psnr", value)


def check_takes(goal: Goal, pipe: Pipeline, dtype: str) -> None:
    """Raise `UsageError` where no bound has an effect: the pipeline takes none, or data of the type come back as they are."""
    if dtype in CARRIED_AS:
        raise UsageError(f"target_{goal.kind}= means nothing for {dtype}, which comes back as it is: leave it out")
    if not any(stage.needs_bound or stage.takes_bound for stage in pipe.graph.nodes.values()):
        raise UsageError(f"target_{goal.kind}= needs a pipeline that takes an error bound; this one is lossless: leave it out")


def find(
    goal: Goal, mode: str, run: Executable, pipe: Pipeline, source: Source, threads: int, out: memoryview | None
) -> tuple[Search, Made]:
    """Return how a bound was found that meets `goal` on the whole of `source`, and the archive made with it.

    Raises
    ------
    Unreachable
        Where none does: the goal lies beyond what the smallest or the largest bound gives, or where the result jumps over it.
    UsageError
        For a mode other than ``abs`` and ``rel``.
    """
    mode = Bound(PLACEHOLDER, mode).mode
    if mode not in ("abs", "rel"):
        raise UsageError(f"a bound of mode {mode!r} cannot be searched for; use abs or rel")
    trial = _Trials(goal, mode, run, pipe, source, threads)
    if not trial.span > 0.0:
        raise _constant(goal, trial)
    bracket = _Bracket(goal.height)
    made: dict[float, float] = {}
    at = trial.seek(goal.height, _guess(goal))[0]
    for _turn in range(WHOLE_RUNS):
        bound = trial.bound(at)
        found = archived(run, pipe, source, bound, threads, out)
        achieved = made[at] = trial.measured(found[1])
        if goal.met(achieved):
            sample, tried = trial.sample.size, len(trial.tried)
            report = Search(goal.kind, goal.value, achieved, bound, sample, tried, len(made))
            found[0].report("", search=f"{goal.kind} {goal.value!r}", achieved=achieved, sample_runs=tried, whole_runs=len(made))
            return report, found
        bracket.take(at, goal.of(achieved))
        if bracket.closed:
            break
        shifted = goal.height + (trial.height(at) - goal.of(achieved))
        inside = [t for t in trial.seek(shifted, at) if bracket.low < t < bracket.high] if math.isfinite(shifted) else []
        at = inside[0] if inside else bracket.next()
    raise _unreachable(goal, trial, made, bracket)


class _Trials:
    """The array, its sample, and what bounds give on either; positions are ``log(bound / largest bound)``, 0 at most."""

    def __init__(self, goal: Goal, mode: str, run: Executable, pipe: Pipeline, source: Source, threads: int) -> None:
        self._goal, self._mode, self._run, self._pipe, self._source, self._threads = goal, mode, run, pipe, source, threads
        self.tried: dict[float, float] = {}

    @cached_property
    def host(self) -> NDArray[Any]:
        """The elements in host memory: those of a device are copied."""
        array = self._run.to_host(self._source.flat)
        assert isinstance(array, np.ndarray)
        return array

    @cached_property
    def extent(self) -> bounds.Extent:
        return bounds.extent(self.host, self._pipe.missing_values)

    @property
    def span(self) -> float:
        """The range of the finite values, the largest absolute bound."""
        return bounds.range_bound(1.0, self.extent)[0]

    @cached_property
    def _sample(self) -> tuple[NDArray[Any], tuple[int, ...]]:
        if any(stage.reads_shape for stage in self._pipe.graph.nodes.values()):
            return boxes(self.host, self._source.shape)
        flat = stratified(self.host, self._run.plan.chunk)
        return flat, flat.shape

    @property
    def sample(self) -> NDArray[Any]:
        return self._sample[0]

    @cached_property
    def _trial_run(self) -> Executable:
        """What runs the sample: the run's own target, or one that works in host memory."""
        plan, target = self._run.plan, self._run.target
        if target is None or target.memory is None:
            return self._run
        other = choose_target(None)
        name = other.name if other is not None and other.memory is None else REFERENCE
        return self._pipe.executable(self._source.dtype, name, plan.fusion)

    def bound(self, at: float) -> Bound:
        largest = self.span if self._mode == "abs" else 1.0
        return Bound(max(largest * math.exp(at), 5e-324), self._mode)

    def height(self, at: float) -> float:
        """Return what the bound at `at` gives on the sample, as a height."""
        if at not in self.tried:
            self.tried[at] = self._goal.of(self._sampled(at))
        return self.tried[at]

    def _sampled(self, at: float) -> float:
        given, sample, run = self.bound(at), self.sample, self._trial_run
        # relative to the range of the whole, of which the sample may have a part only
        eb = given.eb if self._mode == "abs" else max(bounds.range_bound(given.eb, self.extent)[1], 5e-324)
        shape = self._sample[1]
        record, values = run.forward(sample, Bound(eb), self._threads, shape=shape)
        if self._goal.kind == "ratio":
            coded = sum(v.nbytes + (v.sizes.nbytes if isinstance(v, Chunked) else 0) for v in values.values())
            raw = raw_size(header_for(self._pipe, self._source, given, record.state))
            whole = raw - self.host.nbytes + coded * (self.host.size / sample.size)
            return self.host.nbytes / min(whole, raw)
        back = np.empty_like(sample)
        run.inverse(values, record, run.lengths.stretch(shape), self._threads, back)
        return bounds.compare(sample, back, eb, self.extent, missing=self._pipe.missing_values).psnr

    def measured(self, archive: memoryview) -> float:
        """Return the ratio or PSNR of an archive of the whole."""
        if self._goal.kind == "ratio":
            return self.host.nbytes / archive.nbytes
        target = self._run.target.name if self._run.target is not None else REFERENCE
        back = decompress(archive, target=target, threads=self._threads, flat=slice(None))
        native = back if back.dtype.isnative else back.astype(back.dtype.newbyteorder("="))
        return bounds.compare(self.host, native, 0.0, self.extent, missing=self._pipe.missing_values).psnr

    def seek(self, height: float, start: float) -> tuple[float, ...]:
        """Return the positions around `height` on the sample, the better one first."""
        bracket = _Bracket(height)
        at = min(max(start, -_DEPTH), 0.0)
        for _ in range(_STEPS):
            found = self.height(at)
            if abs(found - height) <= self._goal.close / 8:
                return at, at
            bracket.take(at, found)
            if bracket.closed:
                break
            at = bracket.next()
        ends = [(abs(y - height), t) for t, y in bracket.ends]
        return tuple(t for _, t in sorted(ends))


class _Bracket:
    """Where a height is known to be crossed, and where to look next; heights grow with the position, more or less."""

    def __init__(self, height: float) -> None:
        self._height = height
        self._below: tuple[float, float] | None = None
        self._above: tuple[float, float] | None = None
        self._stride = math.log(4.0)
        self._halve = False

    def take(self, at: float, found: float) -> None:
        if found < self._height:
            self._below = (at, found)
        else:
            self._above = (at, found)

    @property
    def low(self) -> float:
        """Positions above this one are open; so is the lowest of all until it has been looked at."""
        return self._below[0] if self._below is not None else -math.inf

    @property
    def high(self) -> float:
        return self._above[0] if self._above is not None else math.inf

    @property
    def ends(self) -> list[tuple[float, float]]:
        return [end for end in (self._below, self._above) if end is not None]

    @property
    def closed(self) -> bool:
        """Whether there is nothing left to look at."""
        return self.low >= 0.0 or self.high <= -_DEPTH or self.high - self.low < _NARROW

    def next(self) -> float:
        """Return a position inside: a stride beyond the one known end, else by interpolation and by halves in turn."""
        if self._below is None or self._above is None:
            self._stride *= 2
            return max(self.high - self._stride, -_DEPTH) if self._below is None else min(self.low + self._stride, 0.0)
        (a, low), (b, high) = self._below, self._above
        self._halve = not self._halve
        share = 0.5
        if not self._halve and math.isfinite(high - low):
            share = min(max((self._height - low) / (high - low), 0.05), 0.95)
        return a + share * (b - a)


def stratified(flat: NDArray[Any], chunk: int, elements: int = SAMPLE) -> NDArray[Any]:
    """Return whole chunks of about `elements` elements, one from each of equal strata; all of `flat` where it has no more.

    Where in its stratum a chunk lies follows the golden ratio: always the same, and in step with no period of the data.
    """
    chunks, wanted = -(-flat.size // chunk), max(elements // chunk, 1)
    if chunks <= wanted:
        return flat
    cuts = [chunks * i // wanted for i in range(wanted + 1)]
    picks = [cuts[i] + int((i * 0.6180339887498949) % 1.0 * (cuts[i + 1] - cuts[i])) for i in range(wanted)]
    return np.concatenate([flat[p * chunk : (p + 1) * chunk] for p in picks])


def boxes(flat: NDArray[Any], shape: tuple[int, ...], elements: int = SAMPLE) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return boxes out of an array of `shape` joined along its first axis, flattened, with the shape that they have so.

    They have about `elements` elements together, and at most `_EDGE` along an axis; all of `flat` where it has no more. They are
    spread as the chunks of `stratified` are.
    """
    if flat.size <= elements:
        return flat, shape
    edges: list[int] = []
    room = elements // 8
    for length in reversed(shape):
        edges.insert(0, max(1, min(length, _EDGE if len(shape) > 1 else room, room)))
        room //= edges[0]
    grid = [length // edge for length, edge in zip(shape, edges, strict=True)]
    boxes, wanted = math.prod(grid), max(elements // math.prod(edges), 1)
    wanted = min(wanted, boxes)
    cuts = [boxes * i // wanted for i in range(wanted + 1)]
    picks = [cuts[i] + int((i * 0.6180339887498949) % 1.0 * (cuts[i + 1] - cuts[i])) for i in range(wanted)]
    array = flat.reshape(shape)
    found = []
    for pick in picks:
        corner = np.unravel_index(pick, grid)
        box: Any = tuple(slice(int(c) * e, (int(c) + 1) * e) for c, e in zip(corner, edges, strict=True))
        found.append(array[box])
    joined = np.concatenate(found)
    return joined.reshape(-1), joined.shape


def _guess(goal: Goal) -> float:
    """Return where to start: for a PSNR where errors are uniform within the bound, whose mean square is a third of its square."""
    return math.log(1e-3) if goal.kind == "ratio" else 0.5 * math.log(3.0) - goal.value / 20.0 * math.log(10.0)


def _constant(goal: Goal, trial: _Trials) -> Unreachable:
    what = "has no finite values" if not trial.extent.any else "is constant"
    return Unreachable(
        f"target_{goal.kind}={goal.value:g} cannot be searched for: the array {what}, so that any bound gives the same and no "
        f"error; pass eb= (such as eb=1e-3, mode='rel')"
    )


def _unreachable(goal: Goal, trial: _Trials, made: dict[float, float], bracket: _Bracket) -> Unreachable:
    ends = [(trial.bound(t).eb, made[t], t) for t, _ in bracket.ends]
    nearest = tuple((eb, achieved) for eb, achieved, _ in ends)
    said = f"target_{goal.kind}={goal.value:g} cannot be met on this array with this pipeline: "
    mode = trial.bound(0.0).mode
    if len(ends) == 1:
        eb, achieved, at = ends[0]
        which = "the largest bound tried" if at >= 0.0 else "the smallest bound tried"
        limit = "more" if goal.value > achieved else "less"
        gives = f"{which}, {mode} {eb:.6g}, gives {goal.words(achieved)}"
        return Unreachable(f"{said}{gives}; ask for no {limit}, or pass eb=", nearest)
    (low, one, _), (high, other, _) = ends
    return Unreachable(
        f"{said}{mode} bound {low!r} gives {goal.words(one)} and {high!r} gives {goal.words(other)}, with nothing nearer found "
        f"between them; ask for one of these, or pass eb=",
        nearest,
    )

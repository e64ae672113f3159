"""Timing: contenders run in turn, several times, so that what disturbs the machine disturbs all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import briquette as bq

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from briquette import Pipeline
    from briquette.plan import Plan

    from .tables import Progress


@dataclass(frozen=True, eq=False)
class Contender:
    """One way to compress: a pipeline on a target in a fusion mode."""

    name: str
    pipeline: Pipeline
    target: str
    fusion: str


@dataclass(eq=False)
class Timing:
    """What a contender did.

    Attributes
    ----------
    archive : bytes
    raw : bool
        The archive holds the data raw, so its times say nothing about the pipeline.
    eb : float or None
        Absolute bound.
    first : float
        Seconds of planning and of compiling, or of loading what was compiled before; in no other time.
    compress_runs, decompress_runs : list of float
        Seconds.
    """

    contender: Contender
    plan: Plan
    archive: bytes
    raw: bool
    outliers: int
    eb: float | None
    ratio: float
    first: float
    compress_runs: list[float] = field(default_factory=list)
    decompress_runs: list[float] = field(default_factory=list)

    @property
    def compress(self) -> float:
        """Median seconds."""
        return statistics.median(self.compress_runs)

    @property
    def decompress(self) -> float:
        """Median seconds."""
        return statistics.median(self.decompress_runs)


def race(
    array: NDArray[np.generic],
    eb: float | None,
    mode: str,
    contenders: Sequence[Contender],
    *,
    threads: int | None,
    repeat: int,
    show: Progress,
) -> list[Timing]:
    """Run every contender once to compile and warm up, then `repeat` times in turn; outputs are preallocated."""
    import numpy as np

    timings: list[Timing] = []
    packed = bytearray(bq.max_archive_bytes(array))
    restored = np.empty(array.shape, array.dtype)
    for i, one in enumerate(contenders):
        show(f"compiling and warming up {one.name} on {one.target}, fusion {one.fusion}", i, len(contenders))
        timings.append(_prepare(array, eb, mode, one, threads, packed))
        bq.decompress(timings[-1].archive, out=restored, **_options(one, threads))
    for turn in range(repeat):
        show("timing", turn, repeat)
        for timing in timings:
            one = timing.contender
            start = time.perf_counter()
            bq.compress(array, eb, mode, pipeline=one.pipeline, out=packed, **_options(one, threads))
            middle = time.perf_counter()
            bq.decompress(timing.archive, out=restored, **_options(one, threads))
            timing.compress_runs.append(middle - start)
            timing.decompress_runs.append(time.perf_counter() - middle)
    return timings


def _options(one: Contender, threads: int | None) -> dict[str, Any]:
    return {"target": one.target, "fusion": one.fusion, "threads": threads}


def _prepare(
    array: NDArray[np.generic], eb: float | None, mode: str, one: Contender, threads: int | None, packed: bytearray
) -> Timing:
    start = time.perf_counter()
    one.pipeline.compile(array.dtype, one.target, one.fusion, None if eb is None else mode)
    first = time.perf_counter() - start
    result = bq.compress_run(array, eb, mode, pipeline=one.pipeline, out=packed, **_options(one, threads))
    return Timing(
        one,
        result.plan,
        bytes(result.archive),
        result.raw,
        result.outliers,
        result.eb,
        result.original_bytes / result.archive_bytes,
        first,
    )


def fusion_modes(asked: Sequence[str]) -> tuple[str, ...]:
    """Return the modes to compare: those asked for, unless the environment's BRIQUETTE_FUSION overrides them all."""
    from briquette.selection import fusion_mode

    return tuple(dict.fromkeys(fusion_mode(mode) for mode in asked))


def speedups(timings: Sequence[Timing]) -> dict[int, tuple[float, float]]:
    """Return, for each fused contender's place, how many times faster than its staged twin it compresses and decompresses."""
    staged = {(t.contender.name, t.contender.target): t for t in timings if t.contender.fusion == "off"}
    found = {}
    for i, t in enumerate(timings):
        twin = staged.get((t.contender.name, t.contender.target))
        if twin is not None and twin is not t:
            found[i] = (twin.compress / t.compress, twin.decompress / t.decompress)
    return found

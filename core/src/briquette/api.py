"""Compress, decompress, inspect and verify: the functions most users need."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import discovery, tuning
from .archive import Archive, ArchiveWriter, ByteRoom, ChunkedSink, ChunkedView, raw_size, write_raw
from .archived import header_for, pipeline_of
from .arrays import Source, as_output, as_source, as_writable_bytes, memory_for, ordered
from .bounds import BoundReport, compare, resolve
from .errors import ArchiveError, BriquetteError, MissingPack, TargetUnavailable, UsageError
from .executor import Checker, Executable
from .fpenv import in_ieee
from .graph import NodePort
from .harness import Overflow, Sink
from .layouts import Stretch
from .pipeline import Pipeline
from .plan import Plan
from .ports import Chunked, PortValue, carried, numpy_dtype
from .record import Bound, RunRecord
from .region import Part, select
from .request import asked
from .selection import check_options, thread_count

if TYPE_CHECKING:
    from .search import Search


@dataclass(frozen=True)
class CompressResult:
    """An archive and what there is to say about its making.

    Attributes
    ----------
    archive : bytes or memoryview
        A memoryview of `out` where that was given.
    record : RunRecord
    plan : Plan
    raw : bool
        Whether the archive holds the data as they are, because coding them would have taken more bytes.
    original_bytes, archive_bytes : int
    seconds : float
        Wall clock of the call, planning and compiling included.
    search : Search or None
        How the bound was found, where a ratio or a PSNR was asked for.
    """

    archive: bytes | memoryview
    record: RunRecord
    plan: Plan
    raw: bool
    original_bytes: int
    archive_bytes: int
    seconds: float
    search: Search | None = None

    @property
    def ratio(self) -> float:
        return self.original_bytes / self.archive_bytes

    @property
    def outliers(self) -> int:
        """Values kept bit for bit beside their codes; 0 where the archive is raw."""
        return 0 if self.raw else sum(int(r.get("outliers") or 0) for r in self.record.results.values())

    @property
    def eb(self) -> float | None:
        """The absolute error bound the run resolved (for mode ``pwrel``, the relative one); None for a lossless run."""
        found = [state["eb"] for state in self.record.state.values() if "eb" in state]
        return float(found[0]) if found else None  # type: ignore[arg-type]


@dataclass(frozen=True)
class DecompressResult:
    """A reconstruction; `plan` is None where the archive held the data raw."""

    array: NDArray[Any]
    record: RunRecord
    plan: Plan | None
    seconds: float


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found.

    Attributes
    ----------
    integrity : bool
        Every checksum held (otherwise `verify` raises).
    eb : float or None
        The bound the original was compared under, absolute but for ``pwrel``; None without an original or a bound.
    bound : BoundReport or None
        None without an original.
    """

    integrity: bool
    eb: float | None = None
    bound: BoundReport | None = None

    @property
    def ok(self) -> bool:
        return self.integrity and (self.bound is None or self.bound.ok)


def compress(
    x: Any,
    eb: float | None = None,
    mode: str = "abs",
    *,
    target_ratio: float | None = None,
    target_psnr: float | None = None,
    pipeline: str | os.PathLike[str] | Pipeline = "fast",
    target: str | None = None,
    fusion: str | None = None,
    allocation: str | None = None,
    threads: int | None = None,
    out: Any = None,
    fill_value: float | Sequence[float] | None = None,
) -> bytes | memoryview:
    """Compress an array so that every finite value comes back within the bound.

    Parameters
    ----------
    x : array
        NumPy, or anything with DLPack or ``__array__`` in host memory; any shape, memory and byte order. Integers of any width,
        float16, bfloat16 (of ml_dtypes), float32, float64 or bool.
    eb : float, optional
        The error bound; floating-point data need one, or a pipeline that brings it. Integers without one come back as they are.
    mode : {"abs", "rel", "pwrel"}
        ``rel`` (alias ``noa``) is relative to the range of the finite values, ``pwrel`` to each value: zeros and signs stay.
    target_ratio, target_psnr : float, optional
        In place of `eb`: the ratio wanted (met within 3 %), or the PSNR in dB (within 0.5); a bound of `mode` is searched for.
        See `briquette.search`.
    pipeline : str, path or Pipeline
        A preset's name, a TOML file, or a pipeline.
    target : str, optional
        ``"numpy"``, ``"host"`` ...; default: the fastest that runs here.
    fusion : {"off", "auto", "force"}, optional
        The environment variable BRIQUETTE_FUSION overrides it.
    allocation : {"minimal", "preallocate"}, optional
        Streams between steps are allocated when made and freed after their last reader (the default), or share an arena
        that is kept and used by the next call with this pipeline; calls at the same time have arenas of their own.
    threads : int, optional
        Default: BRIQUETTE_NUM_THREADS, else what the target finds best.
    out : writable buffer, optional
        Receives the archive; at least `max_archive_bytes(x)` bytes, none of them the input's.
    fill_value : float or sequence of float, optional
        What stands for missing values beside NaN: comes back bit for bit, and does not count in the range of ``rel``. Needs a
        pipeline that takes fill values, such as the preset ``masked``, which takes four.

    Returns
    -------
    bytes, or a memoryview of `out`

    Notes
    -----
    An array in a device's memory is compressed there, in the order of its stream; see `compress_on_device` for an
    archive that stays there.

    Raises
    ------
    UsageError, UnsupportedInput, PipelineError, TargetUnavailable
        Before anything is written.
    Unreachable
        Where no bound gives the ratio or PSNR asked for; says what can be had.
    """
    goal = {"target_ratio": target_ratio, "target_psnr": target_psnr, "fill_value": fill_value}
    options = {"target": target, "fusion": fusion, "allocation": allocation, "threads": threads, "out": out}
    return compress_run(x, eb, mode, pipeline=pipeline, **goal, **options).archive  # type: ignore[arg-type]


@in_ieee
def compress_run(
    x: Any,
    eb: float | None = None,
    mode: str = "abs",
    *,
    target_ratio: float | None = None,
    target_psnr: float | None = None,
    pipeline: str | os.PathLike[str] | Pipeline = "fast",
    target: str | None = None,
    fusion: str | None = None,
    allocation: str | None = None,
    threads: int | None = None,
    out: Any = None,
    fill_value: float | Sequence[float] | None = None,
) -> CompressResult:
    """Compress as `compress` does and return the archive with its record and plan."""
    begin = time.perf_counter()
    check_options(target, fusion, allocation, threads)
    goal = None
    if target_ratio is not None or target_psnr is not None:
        from . import search  # most runs have a bound, and need none of it

        goal, eb = search.goal_of(target_ratio, target_psnr, eb), search.PLACEHOLDER
    pipe, bound, source, target = asked(pipeline, eb, mode, x, target, fill_value=fill_value)
    if goal is not None:
        search.check_takes(goal, pipe, source.dtype)
    run = pipe.executable(carried(source.dtype), target, fusion, allocation=allocation)
    count = thread_count(run.target, threads)
    most = raw_size(header_for(pipe, source, bound, {}))
    found: Search | None = None
    with memory_for(source.nbytes, "the array to compress"):
        room = ByteRoom(most) if out is None else None
        dest = room.array.data if room is not None else as_writable_bytes(out, most, x, source.flat)
        if goal is None:
            tuning.once(run, source.flat, bound, count, source.shape)
            record, view, raw = archived(run, pipe, source, bound, count, dest)
        else:
            found, (record, view, raw) = search.find(goal, mode, run, pipe, source, count, dest)
        nbytes = view.nbytes
        archive = view if room is None else room.cut(nbytes)
    seconds = time.perf_counter() - begin
    record.report("", original_bytes=source.nbytes, archive_bytes=nbytes, seconds=seconds, raw=raw)
    discovery.hooks().run_finished(direction="forward", record=record)
    return CompressResult(archive, record, run.plan, raw, source.nbytes, nbytes, seconds, found)


def archived(
    run: Executable, pipe: Pipeline, source: Source, bound: Bound | None, threads: int, out: memoryview | None
) -> tuple[RunRecord, memoryview, bool]:
    """Return a run's record, its archive, and whether that holds the data raw."""
    record, view = _coded(run, pipe, source, bound, threads, out)
    if view is not None:
        return record, view, False
    whole = _shaped(run.to_host(source.flat), source.shape)
    return record, write_raw(header_for(pipe, source, bound, {}), whole, out, map=_mapper(run, threads)), True


def _coded(
    run: Executable, pipe: Pipeline, source: Source, bound: Bound | None, threads: int, out: memoryview | None
) -> tuple[RunRecord, memoryview | None]:
    """Return the coded archive, or None where it would have more bytes than the data held raw."""
    opened: list[tuple[ArchiveWriter, ChunkedSink]] = []
    mapper = _mapper(run, threads)
    sinks = run.graph.sinks

    def open_sink(record: RunRecord, chunks: int, max_words: int) -> Sink:
        writer = ArchiveWriter(header_for(pipe, source, bound, record.state), len(sinks), out, map=mapper)
        opened.append((writer, writer.open_chunked(chunks, max_words)))
        return opened[0][1]

    record = RunRecord()
    if not source.flat.size:
        run.check_bound(bound)
        return record, None
    try:
        record, values = run.forward(source.flat, bound, threads, open_sink, source.shape)
        of = run.lengths.stretch(source.shape)
        for (node, name), value in values.items():
            record.report(node, **{f"{name}_bytes": value.nbytes})
        if opened:
            writer, sink = opened[0]
            written = values[sinks[0]]
            assert isinstance(written, Chunked)
            assert written.sizes is sink.sizes
            writer.close_chunked(written.words.size, run.lengths.elements(sinks[0], of))
        else:
            writer = ArchiveWriter(header_for(pipe, source, bound, record.state), len(sinks), out, map=mapper)
        for port in sinks[1 if opened else 0 :]:
            add_value(writer, run, values[port], run.lengths.elements(port, of))
        return record, writer.finish()
    except Overflow:
        return record, None


def add_value(writer: ArchiveWriter, run: Executable, value: Any, count: int) -> None:
    """Write a sink's value, which codes `count` elements, as the next segment; a device copies it straight there."""
    if isinstance(value, Chunked):
        writer.add_chunked(value, count, run.bring)
    else:
        writer.add_stream(value, run.bring)


def decompress(
    blob: Any,
    *,
    region: slice | None = None,
    flat: slice | None = None,
    target: str | None = None,
    fusion: str | None = None,
    allocation: str | None = None,
    threads: int | None = None,
    out: Any = None,
) -> NDArray[Any]:
    """Return the array an archive holds, or a part of it, with its dtype, byte order and shape.

    Parameters
    ----------
    blob : bytes, bytearray, memoryview, mmap or uint8 array
    region : slice, optional
        Return ``x[region]`` of the array ``x``: a run along the leading axis, the other axes whole. Bounds are those of
        any Python slice (negative ones count from the end, None is the end, what lies beyond it is cut off); the step is 1.
    flat : slice, optional
        Return ``x.reshape(-1)[flat]`` instead: a run of elements in C order, 1-D.
    target, fusion, allocation, threads
        As for `compress`; any target reads any archive.
    out : array, optional
        C-contiguous, of the archive's dtype and the shape of what is returned, not over the archive; receives the data and is
        returned.

    Raises
    ------
    ArchiveError
        Where the bytes are damaged; nothing is trusted.
    MissingPack
        Where a stage's pack is not installed; says what to install.
    UsageError
        For a `region`, `flat` or `out` that does not fit the archive.
    OutOfMemory
        Where this machine has no memory for the array; a part may fit.

    Notes
    -----
    A part costs what it holds: only the chunks it touches are read and decoded, and only their blocks (64 chunks) are
    verified, so damage elsewhere does no harm. Where a stage of the pipeline declares no local role (UNFUSABLE), everything is
    decoded and the part cut out.
    """
    return decompress_run(
        blob, region=region, flat=flat, target=target, fusion=fusion, allocation=allocation, threads=threads, out=out
    ).array


@in_ieee
def decompress_run(
    blob: Any,
    *,
    region: slice | None = None,
    flat: slice | None = None,
    target: str | None = None,
    fusion: str | None = None,
    allocation: str | None = None,
    threads: int | None = None,
    out: Any = None,
) -> DecompressResult:
    """Decompress as `decompress` does and return the array with the record and plan."""
    begin = time.perf_counter()
    check_options(target, fusion, allocation, threads)
    archive = Archive.open(blob)
    header = archive.header
    dtype, theirs = (ordered(name, header.byteorder) for name in (carried(header.dtype), header.dtype))
    part = select(header.shape, region, flat)
    what = "archive holds" if region is None and flat is None else "part is"
    given = None if out is None else as_output(out, theirs, part.shape, what).view(dtype)
    if given is not None and archive.overlaps(given):
        raise UsageError("out= overlaps the archive, which would be overwritten while it is read; give other memory")
    with memory_for(part.count * dtype.itemsize, "the array to decompress"):
        if header.raw:
            view = archive.stream(0, carried(header.dtype))
            view.verify(part.begin, part.end)
            values = np.empty(part.count, dtype) if given is None else given
            values[:] = view.cut(part.begin, part.end)
            record, plan = RunRecord(), None
        else:
            values, record, plan = _decoded(archive, part, dtype, given, target, fusion, allocation, threads)
    if theirs.kind == "b" and values.size and values.max() > 1:
        raise ArchiveError(f"the archive decodes to {int(values.max())}, which is no truth value")
    array = out if given is not None else _shaped(values.view(theirs), part.shape)
    seconds = time.perf_counter() - begin
    record.report("", reconstructed_bytes=values.nbytes, archive_bytes=archive.nbytes, seconds=seconds)
    discovery.hooks().run_finished(direction="inverse", record=record)
    return DecompressResult(array, record, plan, seconds)


def _shaped(flat: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        shaped: NDArray[Any] = flat.reshape(shape)
        return shaped
    except ValueError as exc:  # NumPy before 2.0 has 32 dimensions, archives 64
        raise ArchiveError(f"this NumPy ({np.__version__}) makes no array of shape {shape}: {exc}") from exc


def _decoded(
    archive: Archive,
    part: Part,
    dtype: np.dtype[Any],
    given: NDArray[Any] | None,
    target: str | None,
    fusion: str | None,
    allocation: str | None,
    threads: int | None,
) -> tuple[NDArray[Any], RunRecord, Plan]:
    """Return the part's elements as `dtype` (of any byte order), in `given` where there is one."""
    header = archive.header
    pipe = pipeline_of(header)
    try:
        run = pipe.executable(carried(header.dtype), target, fusion, header.chunk, allocation)
    except UsageError as exc:
        if isinstance(exc, LookupError):
            raise  # an unknown target or mode is the caller's
        raise ArchiveError(f"the archive's pipeline cannot decode {header.dtype}: {exc}") from exc
    count = thread_count(run.target, threads)
    first, last = part.chunks(run.plan, header.count)
    begin, end = first * header.chunk, min(last * header.chunk, header.count)
    of = run.lengths.stretch(header.shape, begin, end)
    values, checkers = _segments(archive, run, of)
    direct = given is not None and dtype.isnative and (begin, end) == (part.begin, part.end)
    decoded = given if direct and given is not None else np.empty(end - begin, numpy_dtype(carried(header.dtype)))
    record = RunRecord({node: dict(state) for node, state in header.state.items()})
    try:
        if first < last or not header.count:
            run.inverse(values, record, of, count, decoded, checkers)
    except (ArchiveError, MissingPack, TargetUnavailable, MemoryError):
        raise
    except (BriquetteError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as exc:
        raise ArchiveError(f"the archive cannot be decoded: {type(exc).__name__}: {exc}") from exc
    found = decoded if direct else decoded[part.begin - begin : part.end - begin]
    if given is None:  # a small part does not keep the chunks around it alive
        return found.astype(dtype, copy=2 * found.size < decoded.size), record, run.plan
    if not direct:
        given[:] = found
    return given, record, run.plan


def _segments(archive: Archive, run: Executable, of: Stretch) -> tuple[dict[NodePort, PortValue], dict[NodePort, Checker]]:
    """Return the sinks' values in the chunks that hold a part of the array, and what verifies ranges of those."""
    header = archive.header
    sinks = run.graph.sinks
    if len(sinks) != len(archive.segments):
        raise ArchiveError(f"the archive has {len(archive.segments)} segments, its pipeline makes {len(sinks)}")
    values: dict[NodePort, PortValue] = {}
    checkers: dict[NodePort, Checker] = {}
    for index, (node, port) in enumerate(sinks):
        kind = run.plan.types[node][port]
        begin, end, whole = run.lengths.place((node, port), of)
        first, last = begin // header.chunk, -(-end // header.chunk)
        if kind.layout == "chunked":
            chunked = archive.chunked(index)
            if chunked.count != whole:
                raise ArchiveError(f"segment {index} codes {chunked.count} elements, {_due(whole, header.count)}")
            values[node, port] = chunked.cut(first, last)
            checkers[node, port] = partial(_verify, chunked, first)
        else:
            stream = archive.stream(index, kind.dtype)
            if stream.count != whole:
                raise ArchiveError(f"segment {index} holds {stream.count} elements, {_due(whole, header.count)}")
            stream.verify(begin, end)
            values[node, port] = stream.cut(begin, end)
    return values, checkers


def _due(whole: int, count: int) -> str:
    return f"the array has {count}" + (f", {whole} as they are laid out" if whole != count else "")


def _verify(chunked: ChunkedView, first: int, begin: int, end: int) -> None:
    chunked.verify(first + begin, first + end)


def info(blob: Any) -> dict[str, Any]:
    """Return what an archive says of itself, as plain values; needs none of its packs."""
    return Archive.open(blob).summary()


@in_ieee
def verify(blob: Any, original: Any = None, *, target: str | None = None, threads: int | None = None) -> VerifyReport:
    """Check every checksum and, with the original at hand, the bound for every value, exactly.

    Raises
    ------
    ArchiveError
        Where a checksum fails.
    UsageError
        Where `original` is another array than the archive says.
    """
    archive = Archive.open(blob)
    archive.verify_all()
    if original is None:
        return VerifyReport(True)
    source = as_source(original)
    header = archive.header
    if source.shape != header.shape or source.dtype != header.dtype:
        raise UsageError(
            f"the original is {source.dtype} of shape {source.shape}, the archive holds {header.dtype} of shape {header.shape}"
        )
    restored = as_source(decompress(blob, target=target, threads=threads)).flat
    if header.raw or header.bound is None:
        return VerifyReport(True, 0.0, compare(source.flat, restored, 0.0))
    missing, point_wise = pipeline_of(header).missing_values, header.bound.mode == "pwrel"
    eb = resolve(header.bound, source.flat, missing)
    return VerifyReport(True, eb, compare(source.flat, restored, eb, point_wise=point_wise, missing=missing))


def _mapper(run: Executable, threads: int) -> Callable[[Callable[[int], int], Iterable[int]], list[int]]:
    def mapped(work: Callable[[int], int], items: Iterable[int]) -> list[int]:
        if run.target is None or threads == 1:
            return [work(i) for i in items]
        return run.target.map(work, list(items), threads)

    return mapped

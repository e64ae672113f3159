"""Archives that stay in a device's memory: compressed there, decompressed there, made into bytes when wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .api import add_value
from .archive import ArchiveWriter, ByteRoom, raw_size, write_raw
from .archived import header_for
from .arrays import Source, dtype_name
from .errors import PipelineError, UsageError
from .executor import Executable
from .fpenv import in_ieee
from .graph import NodePort
from .harness import GroupRun, Overflow, Repeated
from .layouts import Stretch
from .pipeline import Pipeline
from .ports import Chunked
from .record import Bound, RunRecord
from .region import select
from .repeats import only_program
from .request import asked


@dataclass(eq=False)  # made in every call: frozen, it would take as long as a driver call
class DeviceArchive:
    """A compressed array in a device's memory; nobody changes it.

    Attributes
    ----------
    record : RunRecord
    payload_bytes : int
        Bytes of the coded values, without header and tables.
    """

    pipeline: Pipeline
    source: Source
    bound: Bound | None
    record: RunRecord
    _run: Executable
    _values: Mapping[NodePort, Any]
    _stream: Any = None  # kept alive: the memory of the values is freed in its order

    @property
    def payload_bytes(self) -> int:
        return sum(int(v.nbytes) for v in self._values.values())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def dtype(self) -> str:
        return self.source.dtype

    @in_ieee
    def to_bytes(self) -> bytes:
        """Return the archive, byte for byte what `compress` makes on any target."""
        header = header_for(self.pipeline, self.source, self.bound, self.record.state)
        room, of = ByteRoom(raw_size(header)), self._run.lengths.stretch(self.source.shape)
        try:
            writer = ArchiveWriter(header, len(self._run.graph.sinks), room.array)
            for port in self._run.graph.sinks:
                add_value(writer, self._run, self._values[port], self._run.lengths.elements(port, of))
            return room.cut(writer.finish().nbytes)
        except Overflow:
            if self.bound is not None:  # the data themselves are gone: what can be decoded is not them
                raise UsageError(
                    "coded, this array takes more bytes than its data: use compress, which then holds the data raw"
                ) from None
            host = np.asarray(self._run.to_host(self.decompress())).reshape(self.source.shape)
            return bytes(write_raw(header, host))

    def decompress(self, out: Any = None, *, region: slice | None = None, flat: slice | None = None) -> Any:
        """Return the array, or the part that `region` or `flat` names as for `briquette.decompress`, in the device's memory.

        It goes to `out` (a device array of its size and dtype) where that is given. What is returned speaks DLPack and, where
        the device has one, the framework's array interface.
        """
        target, dtype, count = self._run.target, self.source.dtype, self.source.flat.size
        assert target is not None
        memory = target.memory
        assert memory is not None
        part = select(self.source.shape, region, flat)
        given = None if out is None else memory.view(out)
        if given is not None and (given.size != part.count or dtype_name(given.dtype) != dtype):
            raise UsageError(f"out= holds {given.size} of {given.dtype}, what is decompressed {part.count} of {dtype}")
        first, last = part.chunks(self._run.plan, count)
        begin, end = first * self._run.plan.chunk, min(last * self._run.plan.chunk, count)
        direct = given is not None and (begin, end) == (part.begin, part.end)
        decoded: Any = given if direct else memory.empty(end - begin, dtype, self.source.flat if given is None else given)
        done = False
        if (begin, end) == (0, count) and isinstance(self._values, Repeated):
            done = self._values.back(partial(only_program, self._run, "inverse"), decoded)
        if not done and (first < last or not count):
            of = self._run.lengths.stretch(self.source.shape, begin, end)
            self._run.inverse(self._cut(of), self.record, of, 1, decoded)
        if direct:
            return out
        found = decoded[part.begin - begin : part.end - begin]
        if given is None:
            return found.reshaped(part.shape)
        memory.copy(found, given)
        return out

    def _cut(self, of: Stretch) -> Mapping[NodePort, Any]:
        """Return the sinks' values in the chunks that hold a part of the array."""
        if of.whole:
            return self._values
        values = self._values
        if self._run.plan.inverse.transfers:  # a stage that runs as NumPy takes values that can be cut in host memory
            values = {port: self._run.to_host(value) for port, value in values.items()}
        return {port: self._part(port, value, of) for port, value in values.items()}

    def _part(self, port: NodePort, value: Any, of: Stretch) -> Any:
        begin, end, _ = self._run.lengths.place(port, of)
        chunk = self._run.plan.chunk
        return value.cut(begin // chunk, -(-end // chunk)) if isinstance(value, Chunked) else value[begin:end]


@in_ieee
def compress_on_device(
    x: Any,
    eb: float | None = None,
    mode: str = "abs",
    *,
    pipeline: str | os.PathLike[str] | Pipeline = "fast",
    fusion: str | None = None,
    allocation: str | None = None,
    stream: Any = None,
    fill_value: float | Sequence[float] | None = None,
) -> DeviceArchive:
    """Compress an array that lies in a device's memory and leave the archive there.

    Parameters
    ----------
    x : device array
        CuPy, PyTorch, JAX, anything with DLPack or ``__cuda_array_interface__``; C-contiguous.
    eb, mode, pipeline, fusion, allocation, fill_value
        As for `compress`.
    stream : optional
        The stream to work in (of any framework, or a handle); default: the legacy default stream.

    Raises
    ------
    UsageError
        Where `x` lies in host memory.
    """
    pipe, bound, source, target = asked(pipeline, eb, mode, x, None, stream, fill_value)
    if isinstance(source.flat, np.ndarray):
        raise UsageError(f"a {type(x).__name__} lies in host memory; use compress")
    run = pipe.executable(source.dtype, target, fusion, allocation=allocation)
    record, values = run.forward(source.flat, bound, 1, shape=source.shape)
    return DeviceArchive(pipe, source, bound, record, run, values, stream)


class Captured:
    """A pipeline's compression and decompression of one device array, as graphs that replay at launch cost.

    The array's memory is read anew at each `compress`: put new data of the same shape there. What a replay made is
    overwritten by the next.

    Attributes
    ----------
    output : device array
        Where `decompress` writes.
    """

    def __init__(self, pipeline: Pipeline, source: Source, bound: Bound | None, run: Executable, group: Any) -> None:
        self._pipeline, self._source, self._bound, self._run, self._group = pipeline, source, bound, run, group
        self.output = group.output.reshaped(source.shape)

    def compress(self, stream: Any = None) -> None:
        """Compress what the array holds now, in `stream` (default: the legacy default stream); returns at once."""
        self._group.compress(stream)

    def decompress(self, stream: Any = None) -> Any:
        """Decompress what the last `compress` made into `output`, and return it; returns at once."""
        self._group.decompress(stream)
        return self.output

    def archive(self) -> DeviceArchive:
        """Wait, and return the archive that the last `compress` made; it is gone with the next one."""
        record, values = self._group.values()
        return DeviceArchive(self._pipeline, self._source, self._bound, record, self._run, dict(values))


def capture(pipeline: Pipeline, x: Any, eb: float | None = None, mode: str = "abs", *, stream: Any = None) -> Captured:
    """Capture compression and decompression of the device array `x`.

    Raises
    ------
    PipelineError
        Where the plan is more than one kernel a direction, or its head needs the host in between.
    UsageError
        Where `x` lies in host memory, or a bound is missing.
    """
    pipeline, bound, source, target = asked(pipeline, eb, mode, x, None, stream)
    if isinstance(source.flat, np.ndarray):
        raise UsageError(f"a {type(x).__name__} lies in host memory; only device arrays are captured")
    run = pipeline.executable(source.dtype, target, "auto")
    run.check_bound(bound)
    forward, inverse = only_program(run, "forward"), only_program(run, "inverse")
    if forward is None or inverse is None:
        raise PipelineError(f"only a plan of one kernel each way can be captured; this one is: {run.plan.explain()}")
    assert run.target is not None
    session = run.target.private_session(source.flat)
    of = run.lengths.stretch(source.shape)
    coded = run.lengths.elements(run.graph.sinks[0], of)
    like = GroupRun(RunRecord(), source.flat.size, run.plan.chunk, 1, bound, stretch=of, coded=coded)
    return Captured(pipeline, source, bound, run, forward.capture_with(inverse, session, source.flat, like))

"""Archives that stay in a device's memory: compressed there, decompressed there, made into bytes when wanted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .api import add_value, as_pipeline, placed
from .archive import ArchiveWriter, write_raw
from .archived import header_for
from .arrays import Source
from .errors import UsageError
from .executor import Executable
from .graph import NodePort
from .harness import Overflow
from .pipeline import Pipeline
from .record import Bound, RunRecord


@dataclass(frozen=True, eq=False)
class DeviceArchive:
    """A compressed array in a device's memory.

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
    _values: dict[NodePort, Any]
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

    def to_bytes(self) -> bytes:
        """Return the archive, byte for byte what `compress` makes on any target."""
        header = header_for(self.pipeline, self.source, self.bound, self.record.state)
        try:
            writer = ArchiveWriter(header, len(self._run.graph.sinks))
            for port in self._run.graph.sinks:
                add_value(writer, self._run.to_host(self._values[port]), self.source.flat.size)
            return bytes(writer.finish())
        except Overflow:
            data = self.decompress() if self.bound is None else None
            if data is None:
                raise UsageError(
                    "coded, this array takes more bytes than its data: use compress, which then holds the data raw"
                ) from None
            host = np.asarray(self._run.to_host(data)).reshape(self.source.shape)
            return bytes(write_raw(header, host))

    def decompress(self, out: Any = None) -> Any:
        """Return the array in the device's memory, in `out` (a device array of its size and dtype) where that is given.

        It speaks DLPack and, where the device has one, the framework's array interface.
        """
        target = self._run.target
        assert target is not None
        assert target.memory is not None
        flat = (
            target.memory.empty(self.source.flat.size, self.source.dtype, self.source.flat)
            if out is None
            else target.memory.view(out)
        )
        if flat.size != self.source.flat.size or flat.dtype.name != self.source.dtype:
            raise UsageError(
                f"out= holds {flat.size} of {flat.dtype}, the archive {self.source.flat.size} of {self.source.dtype}"
            )
        self._run.inverse(self._values, self.record, self.source.flat.size, 1, flat)
        return out if out is not None else flat.reshaped(self.source.shape)


def compress_on_device(
    x: Any,
    eb: float | None = None,
    mode: str = "abs",
    *,
    pipeline: str | os.PathLike[str] | Pipeline = "fast",
    fusion: str | None = None,
    stream: Any = None,
) -> DeviceArchive:
    """Compress an array that lies in a device's memory and leave the archive there.

    Parameters
    ----------
    x : device array
        CuPy, PyTorch, JAX, anything with DLPack or ``__cuda_array_interface__``; C-contiguous.
    eb, mode, pipeline, fusion
        As for `compress`.
    stream : optional
        The stream to work in (of any framework, or a handle); default: the legacy default stream.

    Raises
    ------
    UsageError
        Where `x` lies in host memory.
    """
    pipe = as_pipeline(pipeline)
    bound = Bound(eb, mode) if eb is not None else pipe.bound
    source, target = placed(x, None, stream)
    if isinstance(source.flat, np.ndarray):
        raise UsageError(f"a {type(x).__name__} lies in host memory; use compress")
    run = pipe.executable(source.dtype, target, fusion)
    record, values = run.forward(source.flat, bound, 1)
    return DeviceArchive(pipe, source, bound, record, run, values, stream)

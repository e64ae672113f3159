"""Writing archives: payloads go straight into the archive's memory, before their sizes are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from ..errors import DeclarationError, UsageError
from ..harness import Overflow
from ..ports import Chunked, Words, carried, numpy_dtype
from ..record import Bound
from .header import Header
from .layout import (
    BLOCK,
    DESCRIPTOR_BYTES,
    PROLOGUE_BYTES,
    RAW,
    RAW_CHUNK,
    BlockMap,
    Bytes,
    Descriptor,
    align,
    blocks_of,
    chunked_table_bytes,
    chunks_of,
    seal_header,
    serial,
    stream_table_bytes,
    writable_bytes,
)

#: copies an array, of a device perhaps, into an array of NumPy that comes first
Copy = Callable[[NDArray[Any], Any], object]

_EMPTY: Final = Descriptor(0, 0, 0, 0, 0)


def raw_size(header: Header) -> int:
    """Return the exact bytes of the archive that holds the array of `header` raw.

    A pipeline's archive may have as many bytes, not more.
    """
    return _raw_size(header.core_version, header.dtype, header.byteorder, header.shape, header.bound)


@lru_cache(maxsize=64)  # arrays of one kind come one after the other
def _raw_size(core_version: str, dtype: str, byteorder: str, shape: tuple[int, ...], bound: Bound | None) -> int:
    header = Header(core_version, dtype, byteorder, shape, RAW_CHUNK, bound).as_raw()
    end = PROLOGUE_BYTES + len(header.encode(bytes(DESCRIPTOR_BYTES)))
    if not header.count:
        return end
    return align(align(end) + stream_table_bytes(header.count, RAW_CHUNK)) + header.nbytes


def write_raw(header: Header, data: NDArray[Any], out: Any = None, *, map: BlockMap = serial) -> memoryview:
    """Write the archive that holds `data` raw.

    Parameters
    ----------
    header : Header
        Of the array; what it says of a pipeline is left out.
    data : array
        Of the header's shape and dtype, in any memory order and either byte order.
    out : writable contiguous buffer, optional
    map : callable
        Runs the checksums of the blocks, in parallel or not.

    Returns
    -------
    memoryview
        The archive's bytes, in `out` where that is given.

    Raises
    ------
    UsageError
        Where `out` is too small, with the bytes that are needed.
    """
    if data.shape != header.shape or data.dtype.name != carried(header.dtype):
        raise UsageError(f"an array {data.dtype.name}{data.shape} does not match the header {header.dtype}{header.shape}")
    header = header.as_raw()
    total = raw_size(header)
    buf = writable_bytes(out)[:total] if out is not None else np.empty(total, np.uint8)
    if len(buf) < total:
        raise UsageError(f"the output holds {len(buf)} bytes; this archive may need {total}")
    end = PROLOGUE_BYTES + len(header.encode(bytes(DESCRIPTOR_BYTES)))
    segment = _EMPTY
    if header.count:
        segment = Descriptor(align(end), stream_table_bytes(header.count, RAW_CHUNK), header.nbytes, 0, header.count)
        payload = buf[segment.payload_at :]
        np.copyto(payload.view(data.dtype.newbyteorder("=")).reshape(header.shape), data)
        table = _stream_table(payload, BLOCK * RAW_CHUNK * header.itemsize, map).view(np.uint8)
        buf[end : segment.offset] = 0
        buf[segment.offset : segment.offset + segment.table] = table
        buf[segment.offset + segment.table : segment.payload_at] = 0
        segment = segment._replace(checksum=xxh3_64_intdigest(table.data))
    buf[:end] = np.frombuffer(seal_header(RAW, total, header.encode(segment.pack())), np.uint8)
    return buf.data


@dataclass(frozen=True, eq=False)
class ChunkedSink:
    """Memory of the archive that a chunked port is written to (a `harness.Sink`).

    Attributes
    ----------
    sizes : uint32 array, shape (chunks,)
        All to be written.
    words : uint32 array
        The space there is; writers that need more raise `harness.Overflow`.
    """

    sizes: Words
    words: Words


class ArchiveWriter:
    """Writes the segments of a pipeline's archive, in the order of its sinks, then the header.

    Parameters
    ----------
    header : Header
        With the final state; not raw.
    sinks : int
        Segments that will be written.
    out : writable contiguous buffer, optional
        Where the archive goes. Without it memory for the largest archive is reserved, not touched.
    map : callable
        Runs the checksums of blocks, in parallel or not.

    Raises
    ------
    harness.Overflow
        Here and from every method: the archive would have more bytes than `raw_size`, or than `out` has. Then
        `write_raw` is what to call; where it is `out` that is too small it says so.
    """

    def __init__(self, header: Header, sinks: int, out: Any = None, *, map: BlockMap = serial) -> None:
        if header.raw or sinks < 1:
            raise UsageError(f"an archive writer needs a pipeline and a sink (raw: {header.raw}, sinks: {sinks}); see write_raw")
        self._header = header
        self._sinks = sinks
        self._map = map
        limit = raw_size(header)
        self._out: Bytes | None = None if out is None else writable_bytes(out)[:limit]
        # tables are 64-bit words: an output at an odd address gets its bytes at the end
        direct = self._out is not None and self._out.__array_interface__["data"][0] % 8 == 0
        self._limit = limit if self._out is None else len(self._out)
        self._buf: Bytes = self._out if self._out is not None and direct else np.empty(self._limit, np.uint8)
        self._encoded, self._descriptors_at = header.encode_for(sinks)
        self._end = PROLOGUE_BYTES + len(self._encoded)
        self._segments: list[Descriptor] = []
        self._backed = 0  # elements that the tables written so far speak of
        self._open: ChunkedSink | NDArray[Any] | None = None
        self._claim(self._end)

    def open_chunked(self, chunks: int, max_words: int) -> ChunkedSink:
        """Return the memory for the next segment, a chunked port of `chunks` chunks and at most `max_words` words."""
        self._begin()
        blocks = -(-chunks // BLOCK)
        sizes_at = align(self._end) + 16 * blocks
        payload_at = align(sizes_at + 4 * chunks)
        if payload_at > self._limit:
            # no space for a table, which is in order where every chunk turns out to be empty
            sink = ChunkedSink(np.empty(chunks, np.uint32), np.empty(0, np.uint32))
        else:
            capacity = min(max_words, (self._limit - payload_at) // 4)
            sink = ChunkedSink(
                self._buf[sizes_at : sizes_at + 4 * chunks].view(np.uint32),
                self._buf[payload_at : payload_at + 4 * capacity].view(np.uint32),
            )
        self._open = sink
        return sink

    def close_chunked(self, used_words: int, count: int) -> None:
        """Finish the open chunked segment: `used_words` words, coding `count` elements.

        Raises
        ------
        DeclarationError
            Where the sizes written contradict `used_words` or `count`.
        """
        sink, self._open = self._open, None
        if not isinstance(sink, ChunkedSink):
            raise UsageError("no chunked segment is open; call open_chunked first")
        chunk, sizes = self._header.chunk, sink.sizes
        chunks, blocks = len(sizes), blocks_of(count, chunk)
        sums = np.add.reduceat(sizes, np.arange(0, chunks, BLOCK), dtype=np.uint64) if chunks else np.empty(0, np.uint64)
        if chunks != chunks_of(count, chunk) or int(sums.sum()) != used_words:
            raise DeclarationError(
                f"segment {len(self._segments)}: {chunks} chunks of {int(sums.sum())} words in all were written, "
                f"{used_words} words and {count} elements (chunks of {chunk}) reported"
            )
        if not used_words and self._may_be_empty(count):
            self._segments.append(_EMPTY._replace(elements=count))
            return
        segment = Descriptor(align(self._end), chunked_table_bytes(count, chunk), 4 * used_words, 0, count)
        self._claim(segment.end)
        table = self._buf[segment.offset : segment.offset + segment.table]
        heads = table[: 16 * blocks].view(np.uint64)
        heads[0] = 0
        np.cumsum(sums[:-1], out=heads[1:blocks])
        payload = self._buf.data[segment.payload_at : segment.end]
        starts: list[int] = [4 * at for at in heads[:blocks].tolist()] + [4 * used_words]
        digests = self._map(lambda k: xxh3_64_intdigest(payload[starts[k] : starts[k + 1]]), range(blocks))
        heads[blocks:] = np.fromiter(digests, np.uint64, blocks)
        self._add(segment, table)

    def open_stream(self, count: int, dtype: str) -> NDArray[Any]:
        """Return the memory for the next segment, a stream of `count` elements."""
        self._begin()
        dt = numpy_dtype(dtype)
        payload_at = align(align(self._end) + stream_table_bytes(count, self._header.chunk)) if count else self._end
        self._claim(payload_at + count * dt.itemsize)
        stream = self._buf[payload_at : payload_at + count * dt.itemsize].view(dt) if count else np.empty(0, dt)
        self._open = stream
        return stream

    def close_stream(self) -> None:
        """Finish the open stream segment, all of whose elements are written."""
        stream, self._open = self._open, None
        if not isinstance(stream, np.ndarray):
            raise UsageError("no stream segment is open; call open_stream first")
        count, chunk = len(stream), self._header.chunk
        if not count:
            self._segments.append(_EMPTY)
            return
        segment = Descriptor(align(self._end), stream_table_bytes(count, chunk), stream.nbytes, 0, count)
        table = self._buf[segment.offset : segment.offset + segment.table]
        table.view(np.uint64)[:] = _stream_table(stream.view(np.uint8), BLOCK * chunk * stream.itemsize, self._map)
        self._add(segment, table)

    def add_chunked(self, value: Chunked, count: int, copy: Copy = np.copyto) -> None:
        """Write a whole chunked segment by copying `value`, which codes `count` elements."""
        words = value.words.size
        sink = self.open_chunked(value.sizes.size, words)
        if len(sink.words) < words:
            raise Overflow(f"{4 * words} bytes of segment {len(self._segments)} do not fit {self._limit}")
        copy(sink.sizes, value.sizes)
        copy(sink.words, value.words)
        self.close_chunked(words, count)

    def add_stream(self, values: Any, copy: Copy = np.copyto) -> None:
        """Write a whole stream segment by copying the 1-D array `values`."""
        copy(self.open_stream(values.size, values.dtype.name), values)
        self.close_stream()

    def finish(self) -> memoryview:
        """Write the header and return the archive's bytes, in `out` where that was given.

        Raises
        ------
        UsageError
            Where a segment is open or missing.
        DeclarationError
            Where no segment has a table of as many elements as the array, which no reader would accept.
        """
        if self._open is not None or len(self._segments) != self._sinks:
            raise UsageError(f"{len(self._segments)} of {self._sinks} segments are written")
        if self._backed < self._header.count:
            raise DeclarationError(f"the sinks code {self._backed} elements; the array has {self._header.count}")
        at = self._descriptors_at
        self._encoded[at : at + DESCRIPTOR_BYTES * self._sinks] = b"".join(s.pack() for s in self._segments)
        sealed = seal_header(0, self._end, bytes(self._encoded))
        self._buf[: len(sealed)] = np.frombuffer(sealed, np.uint8)
        if self._out is None or self._buf is self._out:
            return self._buf.data[: self._end]
        self._out[: self._end] = self._buf[: self._end]
        return self._out.data[: self._end]

    def _begin(self) -> None:
        if self._open is not None or len(self._segments) >= self._sinks:
            raise UsageError(f"segment {len(self._segments)} of {self._sinks} cannot be opened: close the open one, or finish")

    def _claim(self, end: int) -> None:
        if end > self._limit:
            raise Overflow(f"{end} bytes of archive do not fit {self._limit}")

    def _may_be_empty(self, count: int) -> bool:
        # a reader makes no more elements than tables speak of, so the last segment may have to keep its table
        last = len(self._segments) == self._sinks - 1
        return not count or (count == self._header.count and not (last and self._backed < count))

    def _add(self, segment: Descriptor, table: Bytes) -> None:
        self._buf[self._end : segment.offset] = 0
        self._buf[segment.offset + segment.table : segment.payload_at] = 0
        self._segments.append(segment._replace(checksum=xxh3_64_intdigest(table.data)))
        self._backed = max(self._backed, segment.elements)
        self._end = segment.end


def _stream_table(payload: Bytes, block_bytes: int, map: BlockMap) -> NDArray[np.uint64]:
    view = payload.data
    starts = range(0, len(view), block_bytes)
    return np.fromiter(map(lambda at: xxh3_64_intdigest(view[at : at + block_bytes]), starts), np.uint64, len(starts))

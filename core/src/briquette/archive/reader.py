"""Reading archives in place. Everything an archive says is checked before it is used or anything is allocated."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from ..errors import ArchiveError
from ..ports import numpy_dtype
from .header import Header
from .layout import (
    BLOCK,
    MAJOR,
    PROLOGUE_BYTES,
    BlockMap,
    Bytes,
    Descriptor,
    Prologue,
    align,
    as_bytes,
    blocks_of,
    chunked_table_bytes,
    chunks_of,
    open_prologue,
    serial,
    stream_table_bytes,
    unpack_descriptors,
)
from .views import Blocks, ChunkedView, StreamView, aligned

Kind = Literal["empty", "chunked", "stream"]


class Segment(NamedTuple):
    """A segment whose place and size are in order; its table and payload are not read yet."""

    number: int
    kind: Kind
    at: Descriptor


class Archive:
    """An archive whose header is verified; segments are verified as they are read.

    Attributes
    ----------
    header : Header
    segments : tuple of Segment
        One for each sink of the pipeline.
    prologue : Prologue
    nbytes : int
    """

    def __init__(self, data: Bytes, prologue: Prologue, header: Header, segments: tuple[Segment, ...]) -> None:
        self._data = data
        self._view = data.data
        self.prologue = prologue
        self.header = header
        self.segments = segments

    @classmethod
    def open(cls, buffer: Any) -> Archive:
        """Open the archive in `buffer` without copying it.

        Parameters
        ----------
        buffer : bytes, bytearray, memoryview, mmap or array
            Contiguous; at any address.

        Raises
        ------
        ArchiveError
            Where prologue, header or the places of the segments are damaged.
        ArchiveVersionError
            Where a newer reader is needed.
        UsageError
            Where `buffer` is no contiguous buffer.
        """
        data = as_bytes(buffer)
        view = data.data
        prologue, encoded = open_prologue(view)
        header, packed = Header.decode(encoded, raw=prologue.raw, newer=prologue.minor > 0)
        return cls(data, prologue, header, _segments(view, prologue, header, unpack_descriptors(packed)))

    @property
    def nbytes(self) -> int:
        """Bytes of the archive."""
        return len(self._data)

    def overlaps(self, array: NDArray[Any]) -> bool:
        """Whether `array` may share memory with the archive's bytes."""
        return np.may_share_memory(self._data, array)

    def chunked(self, index: int) -> ChunkedView:
        """Return segment `index` as the value of a chunked port, its table verified.

        Raises
        ------
        ArchiveError
            Where the table is damaged, contradicts the payload, or the segment is of another kind.
        """
        segment, d = self._segment(index, "chunked"), self.segments[index].at
        chunk = self.header.chunk
        if segment.kind == "empty":  # its count is that of the array, which the table of another segment backs
            sizes = np.zeros(chunks_of(d.elements, chunk), np.uint32)
            return ChunkedView(sizes, np.empty(0, np.uint32), d.elements, chunk, Blocks(index, self._view[:0], [0], []))
        self._verify_table(segment)
        blocks = blocks_of(d.elements, chunk)
        sizes_at, end = d.offset + 16 * blocks, d.offset + d.table
        heads = self._data[d.offset : sizes_at].view(np.uint64)
        starts: list[int] = heads[:blocks].tolist()
        sizes = aligned(self._data[sizes_at:end].view(np.uint32))
        sums: list[int] = np.add.reduceat(sizes, np.arange(0, len(sizes), BLOCK), dtype=np.uint64).tolist()
        starts.append(d.payload // 4)
        if starts[0]:
            raise ArchiveError(f"segment {index}: its first block starts at word {starts[0]}, not 0")
        for k in range(blocks):  # Python integers: nothing wraps
            if starts[k] + sums[k] != starts[k + 1]:
                raise ArchiveError(
                    f"segment {index}, block {k}: {sums[k]} words from word {starts[k]} on end at word "
                    f"{starts[k] + sums[k]}, and the next block or the end is at word {starts[k + 1]}"
                )
        words = self._data[d.payload_at : d.end].view(np.uint32)
        payload = self._view[d.payload_at : d.end]
        checked = Blocks(index, payload, [4 * start for start in starts], heads[blocks:].tolist())
        return ChunkedView(sizes, words, d.elements, chunk, checked)

    def stream(self, index: int, dtype: str) -> StreamView:
        """Return segment `index` as a stream of `dtype`, its table verified.

        Raises
        ------
        ArchiveError
            Where the table is damaged, the segment is of another kind, or its elements are of another size.
        """
        dt = numpy_dtype(dtype)
        segment, d = self._segment(index, "stream"), self.segments[index].at
        if segment.kind == "empty":
            if d.elements:
                raise ArchiveError(f"segment {index} holds no bytes, and should hold {d.elements} elements of {dtype}")
            return StreamView(np.empty(0, dt), 1, Blocks(index, self._view[:0], [0], []))
        if d.payload != d.elements * dt.itemsize:
            raise ArchiveError(f"segment {index} holds {d.elements} elements in {d.payload} bytes, which are no {dtype}")
        values = self._data[d.payload_at : d.end].view(dt)
        return StreamView(values, BLOCK * self.header.chunk, self._stream_blocks(segment))

    def verify_all(self, *, map: BlockMap = serial) -> None:
        """Verify every table and every block."""
        for segment in self.segments:
            if segment.kind == "chunked":
                self.chunked(segment.number).verify(map=map)
            elif segment.kind == "stream":
                blocks = self._stream_blocks(segment)
                blocks.verify(0, blocks_of(segment.at.elements, self.header.chunk), map)

    def summary(self) -> dict[str, Any]:
        """Return what `briquette info` shows, as plain values; reads nothing but the header."""
        h = self.header
        return {
            "format": f"{MAJOR}.{self.prologue.minor}",
            "core_version": h.core_version,
            "dtype": h.dtype,
            "byteorder": h.byteorder,
            "shape": list(h.shape),
            "elements": h.count,
            "original_bytes": h.nbytes,
            "archive_bytes": self.nbytes,
            "header_bytes": PROLOGUE_BYTES + self.prologue.header_bytes,
            "ratio": h.nbytes / self.nbytes,
            "raw": h.raw,
            "chunk": h.chunk,
            "bound": None if h.bound is None else {"mode": h.bound.mode, "eb": h.bound.eb},
            "stages": [
                {
                    "node": s.node,
                    "stage": s.qualified,
                    "format_version": s.format_version,
                    "pack_version": s.pack_version,
                    "parameters": dict(s.parameters),
                }
                for s in h.stages
            ],
            "edges": None if h.edges is None else [[e.src_node, e.src_port, e.dst_node, e.dst_port] for e in h.edges],
            "state": {node: dict(values) for node, values in h.state.items()},
            "segments": [
                {"kind": kind, "elements": d.elements, "table_bytes": d.table, "payload_bytes": d.payload}
                for _, kind, d in self.segments
            ],
        }

    def _segment(self, index: int, kind: Kind) -> Segment:
        if not 0 <= index < len(self.segments):
            raise ArchiveError(f"the pipeline needs segment {index}; the archive has {len(self.segments)}")
        segment = self.segments[index]
        if segment.kind not in (kind, "empty"):
            raise ArchiveError(f"segment {index} is {segment.kind}; the pipeline needs a {kind} one")
        return segment

    def _verify_table(self, segment: Segment) -> None:
        d = segment.at
        found = xxh3_64_intdigest(self._view[d.offset : d.offset + d.table])
        if found != d.checksum:
            raise ArchiveError(f"segment {segment.number}: its table is damaged (checksum {found:016x}, not {d.checksum:016x})")

    def _stream_blocks(self, segment: Segment) -> Blocks:
        self._verify_table(segment)
        d = segment.at
        step = BLOCK * self.header.chunk * (d.payload // d.elements)
        checksums: list[int] = self._data[d.offset : d.offset + d.table].view(np.uint64).tolist()
        return Blocks(segment.number, self._view[d.payload_at : d.end], [*range(0, d.payload, step), d.payload], checksums)


def _segments(view: memoryview, prologue: Prologue, header: Header, descriptors: list[Descriptor]) -> tuple[Segment, ...]:
    """Check the descriptors against the file, the header and one another."""
    end, total, backed = PROLOGUE_BYTES + prologue.header_bytes, prologue.total, 0
    segments = []
    for index, d in enumerate(descriptors):
        kind = _kind(index, d, header)
        segments.append(Segment(index, kind, d))
        if kind == "empty":
            continue
        if d.offset != align(end):
            raise ArchiveError(f"segment {index} starts at byte {d.offset}; after {end} bytes it must start at byte {align(end)}")
        if d.end > total:
            raise ArchiveError(f"segment {index} ends at byte {d.end}, beyond the archive's {total} bytes")
        for a, b in ((end, d.offset), (d.offset + d.table, d.payload_at)):
            if any(view[a:b]):
                raise ArchiveError(f"the padding from byte {a} to {b} is not zero")
        end = d.end
        backed = max(backed, d.elements)
    if end != total:
        raise ArchiveError(f"the archive has {total} bytes; its segments end at byte {end}")
    if backed < header.count:
        raise ArchiveError(f"the header claims {header.count} elements; the tables speak of {backed}")
    held = [(d.elements, d.payload) for d in descriptors]
    if header.raw and held != [(header.count, header.nbytes)]:
        raise ArchiveError(f"raw data of {header.nbytes} bytes are not in one segment of as many, but in {held[:4]}")
    return tuple(segments)


def _kind(index: int, d: Descriptor, header: Header) -> Kind:
    """Return which kind of table a descriptor states; the two cannot have the same size."""
    if not d.table and not d.payload:
        if d.offset or d.checksum or d.elements not in (0, header.count):
            raise ArchiveError(
                f"segment {index} is empty, yet its descriptor is {tuple(d)}; the array has {header.count} elements"
            )
        return "empty"
    n = d.elements
    if n and d.table == chunked_table_bytes(n, header.chunk) and not d.payload % 4 and not header.raw:
        return "chunked"
    if n and d.table == stream_table_bytes(n, header.chunk) and d.payload in (n, 2 * n, 4 * n, 8 * n):
        return "stream"
    raise ArchiveError(
        f"segment {index}: a table of {d.table} bytes and a payload of {d.payload} bytes "
        f"cannot hold {n} elements in chunks of {header.chunk}"
    )

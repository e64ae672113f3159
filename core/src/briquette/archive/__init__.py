"""Archives: the byte format of ``docs/format.md``, written and read in place."""

from __future__ import annotations

from .header import MAX_RANK, Edge, Header, StageEntry
from .layout import BLOCK, MAX_CHUNK, RAW_CHUNK, BlockMap, Descriptor, Prologue
from .reader import Archive, Segment
from .room import ByteRoom
from .views import ChunkedView, StreamView
from .writer import ArchiveWriter, ChunkedSink, raw_size, write_raw

__all__ = [
    "BLOCK",
    "MAX_CHUNK",
    "MAX_RANK",
    "RAW_CHUNK",
    "Archive",
    "ArchiveWriter",
    "BlockMap",
    "ByteRoom",
    "ChunkedSink",
    "ChunkedView",
    "Descriptor",
    "Edge",
    "Header",
    "Prologue",
    "Segment",
    "StageEntry",
    "StreamView",
    "raw_size",
    "write_raw",
]

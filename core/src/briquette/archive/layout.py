"""The fixed-width parts of an archive: prologue, segment descriptors, tables, and the arithmetic of their sizes."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from ..errors import ArchiveError, ArchiveVersionError, UsageError

if sys.byteorder != "little":
    raise ImportError("briquette archives are read and written in place, which needs a little-endian machine")

MAGIC: Final = b"\x89BRQ\r\n\x1a\n"
MAJOR: Final = 1
MINOR: Final = 0
#: the oldest minor version whose reader decodes what this writer writes
OLDEST_MINOR: Final = 0
#: feature flag: the data are held raw
RAW: Final = 1
KNOWN_FEATURES: Final = RAW
#: segments and payloads start at multiples of this many bytes
ALIGN: Final = 64
#: chunks that share a checksum and an offset
BLOCK: Final = 64
#: elements of a chunk in an archive that holds the data raw
RAW_CHUNK: Final = 8192
#: elements of a chunk, at most
MAX_CHUNK: Final = 65_536
#: bytes of a CBOR header, at most
MAX_HEADER: Final = 1 << 24
PROLOGUE_BYTES: Final = 48
DESCRIPTOR_BYTES: Final = 40

_PROLOGUE = struct.Struct("<8sHHHHQQII")
_DESCRIPTOR = struct.Struct("<5Q")

#: in the format of a buffer: names of fields, and items that are objects or addresses, of `struct` and `ctypes`
_FIELD_NAME = re.compile(r":[^:]*:")
_REFERENCE = re.compile(r"[OPXz&]|Z(?![fdg])")

Bytes = NDArray[np.uint8]
#: calls a function on every item, in parallel or not, and gives the results in order
BlockMap = Callable[[Callable[[int], int], Sequence[int]], Iterable[int]]


def align(n: int) -> int:
    """Return `n` rounded up to a multiple of `ALIGN`."""
    return -(-n // ALIGN) * ALIGN


def chunks_of(count: int, chunk: int) -> int:
    """Return the number of chunks of `count` elements."""
    return -(-count // chunk)


def blocks_of(count: int, chunk: int) -> int:
    """Return the number of blocks of `count` elements."""
    return -(-count // (BLOCK * chunk))


def chunked_table_bytes(count: int, chunk: int) -> int:
    """Return the bytes of a chunked segment's table: offsets, checksums, sizes."""
    return 16 * blocks_of(count, chunk) + 4 * chunks_of(count, chunk)


def stream_table_bytes(count: int, chunk: int) -> int:
    """Return the bytes of a stream segment's table: checksums."""
    return 8 * blocks_of(count, chunk)


def is_masked(x: Any) -> bool:
    """Whether `x` is a masked array, of a module that is loaded only where there are any."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(x, masked.MaskedArray)


def as_bytes(buffer: Any) -> Bytes:
    """Return any contiguous buffer as a flat array of bytes that shares its memory.

    Raises
    ------
    UsageError
        For an object without a buffer, one whose memory is not contiguous or holds references, and masked arrays.
    """
    if is_masked(buffer):
        raise UsageError("a masked array cannot hold an archive; give its data, x.data")
    if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous:
        raise UsageError(f"an array of strides {buffer.strides} cannot hold an archive; it must be contiguous")
    try:
        view = memoryview(buffer)
        held = _REFERENCE.search(_FIELD_NAME.sub("", view.format))
        data: Bytes = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    except Exception as exc:  # since Python 3.12 a buffer may be the work of any code
        raise UsageError(f"an archive cannot be in a {type(buffer).__name__}: {exc}; give a contiguous buffer of bytes") from exc
    if held:
        raise UsageError(
            f"an archive cannot be in a {type(buffer).__name__} of format {view.format!r}, which holds references to objects; "
            f"give a contiguous buffer of bytes"
        )
    return data


def writable_bytes(out: Any) -> Bytes:
    """Return `out` as `as_bytes` does, after checking that it can be written to."""
    buf = as_bytes(out)
    if len(buf) and not buf.flags.writeable:
        raise UsageError(f"the output, a {type(out).__name__}, is read-only; give a writable buffer such as a bytearray")
    return buf


class Prologue(NamedTuple):
    """The first 48 bytes, checked."""

    minor: int
    oldest_minor: int
    features: int
    total: int
    header_bytes: int

    @property
    def raw(self) -> bool:
        """Whether the archive holds the data as they are."""
        return bool(self.features & RAW)


def seal_header(features: int, total: int, header: bytes) -> bytes:
    """Return the prologue and the header, ready to stand at the start of an archive of `total` bytes."""
    front = _PROLOGUE.pack(MAGIC, MAJOR, MINOR, OLDEST_MINOR, 0, features, total, len(header), 0)
    return front + xxh3_64_intdigest(front + header).to_bytes(8, "little") + header


def open_prologue(view: memoryview) -> tuple[Prologue, bytes]:
    """Check the prologue of the archive in `view` and return it with the header's bytes.

    Raises
    ------
    ArchiveError
        Where magic, lengths or checksum are wrong.
    ArchiveVersionError
        For another major version, a needed minor version above ours, or an unknown feature.
    """
    there = len(view)
    front = bytes(view[:PROLOGUE_BYTES])
    if front[:8] != MAGIC[:there]:
        raise ArchiveError(f"not a briquette archive: it starts with {front[:8].hex(' ')}, not {MAGIC.hex(' ')}")
    if there < PROLOGUE_BYTES:
        raise ArchiveError(f"the archive is truncated: {there} bytes, and the prologue alone takes {PROLOGUE_BYTES}")
    _, major, minor, oldest, zero, features, total, header_bytes, zero2 = _PROLOGUE.unpack_from(front)
    if major != MAJOR:
        raise ArchiveVersionError(f"the archive has format version {major}.{minor}; this briquette reads version {MAJOR}")
    if total > there:
        raise ArchiveError(f"the archive is truncated: it states {total} bytes and {there} are there")
    if total < there:
        raise ArchiveError(f"{there - total} bytes follow the end of the archive, which states {total} bytes")
    end = PROLOGUE_BYTES + header_bytes
    if header_bytes > MAX_HEADER or end > total:
        raise ArchiveError(f"a header of {header_bytes} bytes does not fit an archive of {total} bytes (limit {MAX_HEADER})")
    header = bytes(view[PROLOGUE_BYTES:end])
    stated, found = int.from_bytes(front[40:], "little"), xxh3_64_intdigest(front[:40] + header)
    if stated != found:
        raise ArchiveError(f"the archive's header is damaged: its checksum is {found:016x}, not {stated:016x}")
    if oldest > MINOR:
        raise ArchiveVersionError(
            f"the archive (format {major}.{minor}) needs a reader of format {major}.{oldest}; "
            f"this briquette reads up to {MAJOR}.{MINOR}: install a newer briquette-core"
        )
    unknown = features & ~KNOWN_FEATURES
    if unknown:
        bits = ", ".join(str(bit) for bit in range(64) if unknown >> bit & 1)
        raise ArchiveVersionError(
            f"the archive uses features this briquette does not know (bits {bits}): install a newer briquette-core"
        )
    if oldest > minor or zero or zero2:
        raise ArchiveError(f"the prologue contradicts itself: minor {minor}, oldest {oldest}, reserved fields {zero} and {zero2}")
    return Prologue(minor, oldest, features, total, header_bytes), header


class Descriptor(NamedTuple):
    """Where a segment stands and what it codes; all zero but `elements` for an empty segment."""

    offset: int
    table: int
    payload: int
    checksum: int
    elements: int

    def pack(self) -> bytes:
        """Return the 40 bytes."""
        return _DESCRIPTOR.pack(*self)

    @property
    def payload_at(self) -> int:
        """Offset of the payload."""
        return align(self.offset + self.table)

    @property
    def end(self) -> int:
        """Offset of the first byte after the segment."""
        return self.payload_at + self.payload


def unpack_descriptors(packed: bytes) -> list[Descriptor]:
    """Return the descriptors in `packed`, whose length is a multiple of 40 bytes."""
    return [Descriptor._make(fields) for fields in _DESCRIPTOR.iter_unpack(packed)]


def serial(work: Callable[[int], int], items: Sequence[int]) -> Iterable[int]:
    """The `BlockMap` that uses the calling thread only."""
    return [work(item) for item in items]

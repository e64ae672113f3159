"""Tools for tests of readers: archives that are wrong, with checksums that are right."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from briquette.archive import cbor
from briquette.archive.layout import (
    BLOCK,
    DESCRIPTOR_BYTES,
    MAX_CHUNK,
    PROLOGUE_BYTES,
    Descriptor,
    align,
    blocks_of,
    chunked_table_bytes,
    stream_table_bytes,
    unpack_descriptors,
)
from briquette.errors import BriquetteError


def reseal(data: bytes | bytearray | memoryview) -> bytes:
    """Return `data` with the checksums of blocks, tables and header made right, as far as it can be parsed.

    A sound archive comes back unchanged. Nothing but checksums is touched, so what the damage says is kept.
    """
    out = bytearray(data)
    if len(out) < PROLOGUE_BYTES:
        return bytes(out)
    end = PROLOGUE_BYTES + int.from_bytes(out[32:36], "little")
    if end > len(out):
        return bytes(out)
    try:
        fields = cbor.loads(out[PROLOGUE_BYTES:end])
    except BriquetteError:
        fields = None
    if isinstance(fields, dict):
        packed, chunk = fields.get("g"), fields.get("c")
        if isinstance(packed, bytes) and type(chunk) is int and 1 <= chunk <= MAX_CHUNK and not len(packed) % DESCRIPTOR_BYTES:
            fields["g"] = b"".join(_reseal_segment(out, d, chunk).pack() for d in unpack_descriptors(packed))
            out[PROLOGUE_BYTES:end] = cbor.dumps(fields)
    out[40:48] = xxh3_64_intdigest(out[:40] + out[PROLOGUE_BYTES:end]).to_bytes(8, "little")
    return bytes(out)


def edit_header(data: bytes, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """Return the archive `data` with its header's fields changed by `edit`, lengths and offsets following.

    `edit` gets the CBOR map and changes it in place; descriptors it replaces are taken as they are.
    """
    end = PROLOGUE_BYTES + int.from_bytes(data[32:36], "little")
    fields: Any = cbor.loads(data[PROLOGUE_BYTES:end])
    packed = fields["g"]
    edit(fields)
    start = PROLOGUE_BYTES + len(cbor.dumps(fields))
    body = data[align(end) :]
    if fields.get("g") == packed:
        moved = align(start) - align(end)
        segments = unpack_descriptors(packed)
        fields["g"] = b"".join((d._replace(offset=d.offset + moved) if d.offset else d).pack() for d in segments)
    out = bytearray(data[:PROLOGUE_BYTES]) + cbor.dumps(fields)
    if body:
        out += bytes(align(start) - start) + body
    struct.pack_into("<QI", out, 24, len(out), start - PROLOGUE_BYTES)
    return reseal(out)


def _reseal_segment(out: bytearray, d: Descriptor, chunk: int) -> Descriptor:
    if not d.table or d.end > len(out):
        return d
    view = memoryview(out)[d.payload_at : d.end]
    blocks = blocks_of(d.elements, chunk)
    if d.table == chunked_table_bytes(d.elements, chunk):
        heads = np.frombuffer(out, np.uint64, 2 * blocks, d.offset)
        starts = [4 * at for at in heads[:blocks].tolist()] + [d.payload]
        sums = heads[blocks:]
    elif d.table == stream_table_bytes(d.elements, chunk):
        step = BLOCK * chunk * max(d.payload // d.elements, 1)
        starts = [min(k * step, d.payload) for k in range(blocks)] + [d.payload]
        sums = np.frombuffer(out, np.uint64, blocks, d.offset)
    else:
        return d
    sums[:] = np.array([xxh3_64_intdigest(view[a:b]) for a, b in pairwise(starts)], np.uint64)
    return d._replace(checksum=xxh3_64_intdigest(memoryview(out)[d.offset : d.offset + d.table]))

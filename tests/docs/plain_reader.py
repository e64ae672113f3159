"""A reader of archives written from docs/format.md alone: it shares no code with briquette.

It knows raw archives, and chains of ``linear-quantizer``, ``lorenzo-1d``, ``zigzag``, ``plain-rate``, ``adaptive-bitplane``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

Words = NDArray[np.uint32]


class Cbor:
    """The subset of "Header"."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def value(self) -> Any:
        head = self.take(1)[0]
        major, info = head >> 5, head & 31
        if major == 7:
            return {20: False, 21: True, 22: None}[info] if info != 27 else struct.unpack(">d", self.take(8))[0]
        number = info if info < 24 else int.from_bytes(self.take(1 << (info - 24)), "big")
        if major < 2:
            return number if major == 0 else -1 - number
        if major < 4:
            return self.take(number) if major == 2 else self.take(number).decode()
        if major == 4:
            return [self.value() for _ in range(number)]
        return {self.value(): self.value() for _ in range(number)}


@dataclass
class Segment:
    """One descriptor of ``g`` and what it points to."""

    table: bytes
    payload: bytes
    count: int

    def chunks(self, chunk: int) -> list[Words]:
        """Return the words of each chunk of a chunked segment."""
        n = -(-self.count // chunk)
        blocks = -(-n // 64)
        if not self.table:
            return [np.empty(0, np.uint32)] * n
        offsets = np.frombuffer(self.table, "<u8", blocks)
        sums = np.frombuffer(self.table, "<u8", blocks, 8 * blocks)
        sizes = np.frombuffer(self.table, "<u4", n, 16 * blocks)
        words, found = np.frombuffer(self.payload, "<u4"), []
        for b in range(blocks):
            at = begin = int(offsets[b])
            for size in sizes[64 * b : 64 * b + 64]:
                found.append(words[at : at + int(size)])
                at += int(size)
            assert xxhash.xxh3_64_intdigest(words[begin:at].tobytes()) == sums[b], "a block's checksum"
        return found


def read(blob: bytes) -> NDArray[Any]:
    """Return the array of an archive."""
    magic, major, _, _, zero, flags, size, header_bytes, pad, checksum = struct.unpack_from("<8s4H2Q2IQ", blob)
    assert (magic, major, zero, pad, size) == (b"\x89BRQ\r\n\x1a\n", 1, 0, 0, len(blob))
    assert checksum == xxhash.xxh3_64_intdigest(blob[:40] + blob[48 : 48 + header_bytes])
    header = Cbor(blob[48 : 48 + header_bytes]).value()
    dtype, shape, chunk = np.dtype(header["d"]), header["s"], header["c"]
    count = int(np.prod(shape, dtype=np.int64))
    segments = []
    for at in range(0, len(header["g"]), 40):
        offset, table, payload, table_sum, elements = struct.unpack_from("<5Q", header["g"], at)
        begin = offset + -(-table // 64) * 64
        segments.append(Segment(blob[offset : offset + table], blob[begin : begin + payload], elements))
        assert not table or table_sum == xxhash.xxh3_64_intdigest(segments[-1].table)
    if flags & 1:
        return np.frombuffer(segments[0].payload, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    # sinks are numbered from the last stage to the first: the coder's output, then the quantizer's outliers
    coded, outliers = segments
    stages = [(entry[1].split(":")[1], entry[4]) for entry in header["p"]]
    assert stages[0][0] == "linear-quantizer", "this reader knows chains that begin with it"
    step = header["t"][header["p"][0][0] or "linear-quantizer"]["quant_step"]
    given = stages[0][1]["code_type"]
    code = np.dtype({"auto": "int64" if dtype == np.float64 else "int32"}.get(given, given))
    folded = any(name == "zigzag" for name, _ in stages)
    decode = {"plain-rate": plain_rate, "adaptive-bitplane": bit_planes}[stages[-1][0]]
    kind = np.dtype(f"u{code.itemsize}") if folded else code
    lengths = [min(chunk, count - at) for at in range(0, count, chunk)]
    parts = [decode(w, m, stages[-1][1]["segment"], kind) for w, m in zip(coded.chunks(chunk), lengths, strict=True)]
    codes = np.concatenate(parts)
    for name, parameters in reversed(stages[1:-1]):
        if name == "zigzag":
            codes = unfold(codes)
        else:
            assert name == "lorenzo-1d", name
            r = parameters["region"]
            rows = np.pad(codes, (0, -codes.size % r)).view(f"u{codes.itemsize}").reshape(-1, r)
            codes = np.cumsum(rows, axis=1, dtype=rows.dtype).reshape(-1)[: codes.size].view(codes.dtype)
    values = dequantize(codes, step, dtype)
    for c, words in enumerate(outliers.chunks(chunk)):
        if words.size:
            where, bits = aside(words, lengths[c], dtype)
            values[c * chunk + where] = bits.view(dtype)
    return values.reshape(shape)


def dequantize(codes: NDArray[Any], step: float, dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype == np.float64:
        return codes.astype(np.float64) * step
    narrow = codes.astype(np.float32)
    wide = (codes.astype(np.float64) * step).astype(np.float32)
    return np.where(np.abs(narrow) < 65536, narrow * np.float32(step), wide)


def unfold(values: NDArray[Any]) -> NDArray[Any]:
    one = values.dtype.type(1)
    return ((values >> one) ^ (np.zeros_like(values) - (values & one))).view(f"i{values.itemsize}")


def bits_of(words: Words) -> NDArray[np.uint8]:
    return np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")


def segments_of(words: Words, m: int, segment: int) -> tuple[NDArray[np.uint8], Words]:
    """Return the byte of each segment, and the words behind these."""
    k = -(-m // segment)
    return words.astype("<u4").view(np.uint8)[:k], words[-(-k // 4) :]


def numbers(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return one number a row, its lowest bit first."""
    return (bits.astype(np.uint64) << np.arange(bits.shape[1], dtype=np.uint64)).sum(axis=1, dtype=np.uint64)


def plain_rate(words: Words, m: int, segment: int, kind: np.dtype[Any]) -> NDArray[Any]:
    widths, rest = segments_of(words, m, segment)
    out = np.zeros(widths.size * segment, f"u{kind.itemsize}")
    for i, w in enumerate(widths.tolist()):
        mine, rest = rest[: segment * w // 32], rest[segment * w // 32 :]
        if w:
            out[i * segment : (i + 1) * segment] = numbers(bits_of(mine).reshape(segment, w)).astype(out.dtype)
    return (unfold(out) if kind.kind == "i" else out)[:m]


def bit_planes(words: Words, m: int, segment: int, kind: np.dtype[Any]) -> NDArray[Any]:
    widths, rest = segments_of(words, m, segment)
    out = np.zeros(widths.size * segment, f"u{kind.itemsize}")
    signs = int(kind.kind == "i")
    for i, r in enumerate(widths.tolist()):
        if r:
            length = (r + signs) * segment // 32
            planes, rest = bits_of(rest[:length]).reshape(r + signs, segment), rest[length:]
            magnitude = numbers(planes[signs:].T).astype(out.dtype)
            negative = planes[0].astype(bool) if signs else np.zeros(segment, bool)
            out[i * segment : (i + 1) * segment] = np.where(negative, np.zeros_like(magnitude) - magnitude, magnitude)
    return out[:m].view(kind)


def aside(words: Words, m: int, dtype: np.dtype[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the positions and the bits of a chunk's outliers."""
    count, positions, values = int(words[0]) & 0xFFFFFFF, int(words[0]) >> 28 & 3, int(words[0]) >> 30
    at = 1
    if positions == 0:
        where = words[at:].astype("<u4").view("<u2")[:count].astype(np.int64)
        at += -(-count // 2)
    elif positions == 1:
        where = np.flatnonzero(bits_of(words[at : at + -(-m // 32)]))
        at += -(-m // 32)
    else:
        runs = words[at + 1 : at + 1 + int(words[at])].tolist()
        where = np.concatenate([np.arange(run & 0xFFFF, (run & 0xFFFF) + (run >> 16) + 1) for run in runs])
        at += 1 + len(runs)
    kind = f"<u{dtype.itemsize}"
    if values == 0:
        return where, words[at:].astype("<u4").view(kind)[:count]
    runs_of = int(words[at])
    lengths = words[at + 1 :].astype("<u4").view("<u2")[:runs_of].astype(np.int64) + 1
    bits = words[at + 1 + -(-runs_of // 2) :].astype("<u4").view(kind)[:runs_of]
    return where, np.repeat(bits, lengths)

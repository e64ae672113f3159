"""Headers and segments for the tests of archives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from briquette.archive import ArchiveWriter, Header, StageEntry
from briquette.ports import Chunked
from briquette.record import Bound

STAGES = (
    StageEntry("linear-quantizer", "linear-quantizer", "briquette-quantize", 1, "0.1.0", {"code": "int32"}),
    StageEntry("lorenzo-1d", "lorenzo-1d", "briquette-lorenzo", 1, "0.1.0", {"region": 256}),
    StageEntry("plain-rate", "plain-rate", "briquette-bitpack", 1, "0.1.0", {"segment": 32}),
)
STATE = {
    "linear-quantizer": {
        "eb": 1.25e-3,
        "low": -1.0,
        "high": 3.5,
        "quant_step": 400.5,
        "dequant_step": 2.5e-3,
        "element_count": 1_000_000,
        "fill_code": -123_456,
        "exact": False,
    }
}


def header(shape: tuple[int, ...], chunk: int = 32, dtype: str = "float32", **changes: Any) -> Header:
    base = Header("0.1.0", dtype, "<", shape, chunk, Bound(1e-3, "rel"), STAGES, None, STATE)
    return dataclasses.replace(base, **changes)


def value(sizes: Sequence[int], seed: int = 0) -> Chunked:
    words = np.random.default_rng(seed).integers(0, 2**32, sum(sizes), np.uint32)
    return Chunked(np.array(sizes, np.uint32), words)


def written(h: Header, *values: Chunked | np.ndarray[Any, Any], out: Any = None) -> bytes:
    writer = ArchiveWriter(h, len(values), out)
    for v in values:
        if isinstance(v, Chunked):
            writer.add_chunked(v, h.count)
        else:
            writer.add_stream(v)
    return bytes(writer.finish())


def expected_size(h: Header, values: Sequence[Chunked | np.ndarray[Any, Any]]) -> int:
    """The bytes of the archive by the words of the format page."""
    end, tables = 48 + len(h.encode(bytes(40 * len(values)))), False
    for i, v in enumerate(values):
        blocks = -(-h.count // (64 * h.chunk))
        if isinstance(v, Chunked):
            if not v.sizes.any() and (tables or i < len(values) - 1):
                continue
            table, payload = 16 * blocks + 4 * len(v.sizes), v.words.nbytes
        else:
            table, payload = 8 * blocks, v.nbytes
        tables = True
        end = -(-(-(-end // 64) * 64 + table) // 64) * 64 + payload
    return end


def same(view: Chunked, v: Chunked) -> bool:
    return np.array_equal(view.sizes, v.sizes) and np.array_equal(view.words, v.words)

"""Adaptive bit-plane coder: signs, then as many planes of magnitudes as a segment's largest needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp
from briquette.ports import PortValue
from briquette.stage import Scope

from . import _tiled
from ._blocks import by_width, lane_of
from ._coder import SegmentCoder
from ._segments import BLOCK, Bytes, Index, bit_lengths, padded, rows


@dataclass(frozen=True)
class AdaptiveBitplane(SegmentCoder):
    """Write each segment as a plane of signs and the planes of its magnitudes, lowest first.

    Unsigned codes have no sign plane. A segment of zeros takes its byte only.

    Parameters
    ----------
    segment : int, optional
        Elements that share a number of planes: a multiple of 32 from 32 to 1024; 32 by default.

    Raises
    ------
    PipelineError
        If `segment` is anything else.

    Notes
    -----
    Sign map, per-block bit count and bit-shuffled magnitudes are the coder of cuSZp (Huang et al., "cuSZp: an
    ultra-fast GPU error-bounded lossy compression framework with optimized end-to-end performance", SC'23). The byte
    format is briquette's own (docs/format.md).
    """

    name: ClassVar[str] = "adaptive-bitplane"

    def most_bits(self, dtype: np.dtype[np.generic]) -> int:
        """Return the planes of a segment, that of its signs included."""
        return super().most_bits(dtype) + (dtype.kind == "i")

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, shape (count,), into the chunked ``out``; keep ``tiles`` in its metadata where that is connected."""
        codes: NDArray[Any] = padded(np.asarray(inputs["in"]), self.segment)
        signed = codes.dtype.kind == "i"
        values = _magnitudes(codes)
        planes = bit_lengths(values, self.segment)
        value, offsets = _tiled.write(planes, self._lengths(planes, signed), inputs, scope, self.segment)
        if not planes.any():
            return {"out": value}
        row_bytes = self.segment // 8
        signs = np.packbits(codes < 0, bitorder="little").reshape(-1, row_bytes) if signed else None
        narrow = values.astype(f"u{lane_of(int(planes.max())) // 8}", copy=False).reshape(-1, self.segment)
        for r, which in by_width(planes):
            group = np.take(narrow, which, axis=0)
            out = np.empty((which.size, r + signed, row_bytes), np.uint8)
            if signs is not None:
                out[:, 0] = signs[which]
            for p in range(r):
                if p % 8 == 0:
                    lane = (group >> group.dtype.type(p)).astype(np.uint8)
                bits = np.packbits(lane & np.uint8(1 << p % 8), bitorder="little")
                out[:, p + signed] = bits.reshape(-1, row_bytes)
            length = out.shape[1] * row_bytes
            rows(value.words, length // 4)[offsets[which]] = out.reshape(-1).view(f"V{length}")
        return {"out": value}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into codes ``in``, and ``tiles``; raise `ArchiveError` if it is no payload of this coder."""
        value = self.payload(outputs)
        dtype = scope.types["in"].numpy
        signed = dtype.kind == "i"
        found = _tiled.read(value, partial(self._lengths, signed=signed), scope, self.segment)
        planes, offsets = found.widths, found.offsets
        row_bytes = self.segment // 8
        values = np.zeros((planes.size, self.segment), f"u{lane_of(int(planes.max(initial=0))) // 8}")
        negative = np.zeros((planes.size, row_bytes), np.uint8)
        words = np.ascontiguousarray(value.words)
        for r, which in by_width(planes):
            packed = rows(words, (r + signed) * row_bytes // 4)[offsets[which]].view(np.uint8).reshape(-1, r + signed, row_bytes)
            if signed:
                negative[which] = packed[:, 0]
            group = np.zeros((which.size, self.segment), values.dtype)
            for first in range(0, r, 8):
                lane = np.zeros(group.shape, np.uint8)
                for p in range(first, min(r, first + 8)):
                    lane |= np.unpackbits(packed[:, p + signed], axis=1, bitorder="little") << np.uint8(p - first)
                group |= lane.astype(values.dtype, copy=False) << values.dtype.type(first)
            values[which] = group
        codes: NDArray[Any] = values.reshape(-1)[: scope.count].astype(dtype, copy=False)
        if signed:
            flips = np.unpackbits(negative.reshape(-1), count=scope.count, bitorder="little").view(np.int8)
            codes ^= np.negative(flips)  # two's complement: invert, then add one
            codes += flips
        return _tiled.given_back(codes, found)

    def cost(self, codes: NDArray[Any], scope: Scope) -> Index:
        """Return the words of each segment of `codes`."""
        planes = bit_lengths(_magnitudes(padded(codes, self.segment)), self.segment)
        return self._lengths(planes, codes.dtype.kind == "i")

    def _lengths(self, planes: Bytes, signed: bool) -> Index:
        """Return the words of each segment."""
        return (planes.astype(np.int64) + (planes > 0) * int(signed)) * (self.segment // BLOCK)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``AdaptiveBitplane``."""
        return FusedOp("warp-register", "AdaptiveBitplane", "briquette_bitpack/cuda/bitplane.cuh")


def _magnitudes(codes: NDArray[Any]) -> NDArray[Any]:
    """Return magnitudes as unsigned; that of the most negative code is 2**(bits - 1)."""
    if codes.dtype.kind == "u":
        return codes
    sign = codes >> (8 * codes.itemsize - 1)
    out = codes ^ sign
    out -= sign
    magnitudes: NDArray[Any] = out.view(f"u{codes.itemsize}")
    return magnitudes

"""Plain-rate coder that may keep a segment's first element aside, where the others then need fewer bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp
from briquette.ports import PortValue
from briquette.stage import Scope

from . import _blocks, _tiled
from ._coder import SegmentCoder
from ._segments import (
    BLOCK,
    Bytes,
    Index,
    bit_lengths,
    fold,
    number_lengths,
    padded,
    per_block,
    unfold,
)


@dataclass(frozen=True)
class OutlierCoder(SegmentCoder):
    """Write each segment's codes with as many bits as its largest needs, or as all but the first need, whichever is shorter.

    A predictor that starts anew leaves a large code where it starts, and small ones behind. Such a segment is packed at the
    width of the small ones; what the first code has above that, up to 32 bits, stands in one word before them. Signed codes
    have their signs folded into the lowest bit first. A segment of zeros takes its byte only, and so does the choice: it is
    made by exact length, and of equal ones the plain form is taken.

    Parameters
    ----------
    segment : int, optional
        Elements that share a width: a multiple of 32 from 32 to 1024; 32 by default.

    Raises
    ------
    PipelineError
        If `segment` is anything else.

    Notes
    -----
    The choice between plain and outlier blocks is that of cuSZp2 (Huang et al., "cuSZp2: a GPU lossy compressor with extreme
    throughput and optimized compression ratio", SC'24). The byte format is briquette's own (docs/format.md).
    """

    name: ClassVar[str] = "outlier"

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, shape (count,), into the chunked ``out``; keep ``tiles`` in its metadata where that is connected."""
        values = fold(padded(np.asarray(inputs["in"]), self.segment))
        bits = 8 * values.itemsize
        meta = self._choose(values)
        value, offsets = _tiled.write(meta, self._lengths(meta, bits), inputs, scope, self.segment)
        widths, aside = _parts(meta, bits)
        first = values[:: self.segment]
        high = (first[aside] >> widths[aside].astype(values.dtype)).astype(np.uint32)
        values = values.copy()
        values[:: self.segment][aside] &= (values.dtype.type(1) << widths[aside].astype(values.dtype)) - values.dtype.type(1)
        _blocks.pack(values, *per_block(widths, offsets + aside, self.segment), value.words)
        value.words[offsets[aside]] = high
        return {"out": value}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into codes ``in``, and ``tiles``; raise `ArchiveError` if it is no payload of this coder."""
        value = self.payload(outputs)
        dtype = scope.types["in"].numpy
        bits = 8 * dtype.itemsize
        found = _tiled.read(value, lambda meta: self._lengths(meta, bits), scope, self.segment, 2 * bits - 1)
        widths, aside = _parts(found.widths, bits)
        values = _blocks.unpack(value.words, *per_block(widths, found.offsets + aside, self.segment))
        values = values.astype(f"u{dtype.itemsize}", copy=False)
        high = value.words[found.offsets[aside]].astype(values.dtype)
        values[:: self.segment][aside] |= high << widths[aside].astype(values.dtype)
        values = values[: scope.count]
        return _tiled.given_back((unfold(values) if dtype.kind == "i" else values).astype(dtype, copy=False), found)

    def cost(self, codes: NDArray[Any], scope: Scope) -> Index:
        """Return the words of each segment of `codes`."""
        values = fold(padded(codes, self.segment))
        return self._lengths(self._choose(values), 8 * values.itemsize)

    def _choose(self, values: NDArray[Any]) -> Bytes:
        """Return each segment's metadata: its width, or that of all but the first plus the type's bits plus 1."""
        bits = 8 * values.itemsize
        whole = bit_lengths(values, self.segment)
        first = number_lengths(values[:: self.segment].astype(np.uint64), values.itemsize)
        others = values.copy()
        others[:: self.segment] = 0
        least = np.maximum(bit_lengths(others, self.segment), np.maximum(first, 32) - np.uint8(32)).astype(np.int64)
        blocks = self.segment // BLOCK
        aside = (blocks * least + 1 < blocks * whole.astype(np.int64)) & (least <= bits - 2)
        return np.where(aside, least + bits + 1, whole).astype(np.uint8)

    def _lengths(self, meta: Bytes, bits: int) -> Index:
        """Return the words of each segment."""
        widths, aside = _parts(meta, bits)
        return widths.astype(np.int64) * (self.segment // BLOCK) + aside

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``OutlierCoder``."""
        return FusedOp("warp-register", "OutlierCoder", "briquette_bitpack/cuda/outlier.cuh")


def _parts(meta: Bytes, bits: int) -> tuple[Bytes, NDArray[np.bool_]]:
    """Return the width at which each segment is packed, and whether its first code's high bits stand before it."""
    aside = meta > bits
    return np.where(aside, meta - np.uint8(bits + 1), meta).astype(np.uint8), aside

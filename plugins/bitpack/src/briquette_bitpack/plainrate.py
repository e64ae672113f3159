"""Plain-rate coder: each segment's codes at the fixed width of its largest."""

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
from ._segments import BLOCK, Bytes, Index, bit_lengths, fold, padded, per_block, unfold


@dataclass(frozen=True)
class PlainRate(SegmentCoder):
    """Write each segment's codes with as many bits as its largest needs, one after another.

    Signed codes have their signs folded into the lowest bit first. A segment of zeros takes its width byte only.

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
    Fixed-length coding of short segments after a predictor is the coder of SZp and cuSZp (Huang et al., "cuSZp: an
    ultra-fast GPU error-bounded lossy compression framework with optimized end-to-end performance", SC'23); the values
    stand bit-contiguously as in FSZ rather than as bit planes. The byte format is briquette's own (docs/format.md).
    """

    name: ClassVar[str] = "plain-rate"

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, shape (count,), into the chunked ``out``; keep ``tiles`` in its metadata where that is connected."""
        codes: NDArray[Any] = padded(np.asarray(inputs["in"]), self.segment)
        values = fold(codes)
        widths = bit_lengths(values, self.segment)
        value, offsets = _tiled.write(widths, self._lengths(widths), inputs, scope, self.segment)
        _blocks.pack(values, *per_block(widths, offsets, self.segment), value.words)
        return {"out": value}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into codes ``in``, and ``tiles``; raise `ArchiveError` if it is no payload of this coder."""
        value = self.payload(outputs)
        dtype = scope.types["in"].numpy
        found = _tiled.read(value, self._lengths, scope, self.segment)
        values = _blocks.unpack(value.words, *per_block(found.widths, found.offsets, self.segment))[: scope.count]
        return _tiled.given_back((unfold(values) if dtype.kind == "i" else values).astype(dtype, copy=False), found)

    def cost(self, codes: NDArray[Any], scope: Scope) -> Index:
        """Return the words of each segment of `codes`."""
        return self._lengths(bit_lengths(fold(padded(codes, self.segment)), self.segment))

    def _lengths(self, widths: Bytes) -> Index:
        """Return the words of each segment."""
        return widths.astype(np.int64) * (self.segment // BLOCK)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``PlainRate``."""
        return FusedOp("warp-register", "PlainRate", "briquette_bitpack/cuda/plainrate.cuh")

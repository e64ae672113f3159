"""Plain-rate coder: each segment's codes at the fixed width of its largest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError
from briquette.ports import Chunked, PortType, PortValue
from briquette.stage import Scope, Stage

from . import _blocks, _tiled
from ._segments import BLOCK, Bytes, Index, bit_lengths, check_codes, check_segment, fold, padded, per_block, unfold


@dataclass(frozen=True)
class PlainRate(Stage):
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

    segment: int = 32

    name: ClassVar[str] = "plain-rate"
    optional_inputs: ClassVar[tuple[str, ...]] = (_tiled.PORT,)

    def __post_init__(self) -> None:
        check_segment(self.name, self.segment)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of codes, and tiles that have no room."""
        check_codes(self.name, inputs["in"])
        _tiled.check(self.name, inputs, self.segment)
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk whose every segment has the code type's full width."""
        segments = -(-chunk // self.segment)
        most = segments * (self.segment // 32) * 8 * types["in"].numpy.itemsize
        return -(-segments // 4) + most + _tiled.max_words(types, chunk)

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
        value = outputs["out"]
        if not isinstance(value, Chunked):
            raise ArchiveError("stage 'plain-rate' was given a stream to decode, not a chunked value")
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

    def spare_meta_bits(self, dtype: str) -> int:
        """Return the high bits of a segment's byte that its width never takes: 3 for 16-bit codes, 2 for 32, 1 for 64."""
        return _tiled.spare_bits(dtype)

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC over `segment`."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, self.segment)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``PlainRate``."""
        return FusedOp("warp-register", "PlainRate", "briquette_bitpack/cuda/plainrate.cuh")

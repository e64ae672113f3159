"""Plain-rate coder that may keep a segment's first element aside, where the others then need fewer bits."""

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
from ._segments import (
    BLOCK,
    Bytes,
    Index,
    bit_lengths,
    check_codes,
    check_segment,
    fold,
    number_lengths,
    padded,
    per_block,
    unfold,
)


@dataclass(frozen=True)
class OutlierCoder(Stage):
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

    segment: int = 32

    name: ClassVar[str] = "outlier"
    optional_inputs: ClassVar[tuple[str, ...]] = (_tiled.PORT,)

    def __post_init__(self) -> None:
        check_segment(self.name, self.segment)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of codes, and tiles that have no room."""
        check_codes(self.name, inputs["in"])
        _tiled.check(self.name, inputs, self.segment)
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk whose every segment has the code type's full width: the other form is only shorter."""
        segments = -(-chunk // self.segment)
        most = segments * (self.segment // BLOCK) * 8 * types["in"].numpy.itemsize
        return -(-segments // 4) + most + _tiled.max_words(types, chunk)

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
        value = outputs["out"]
        if not isinstance(value, Chunked):
            raise ArchiveError("stage 'outlier' was given a stream to decode, not a chunked value")
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

    def spare_meta_bits(self, dtype: str) -> int:
        """Return the high bits of a segment's byte that it never takes: 3 for 16-bit codes, 2 for 32, 1 for 64."""
        return _tiled.spare_bits(dtype)

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC over `segment`."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, self.segment)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``OutlierCoder``."""
        return FusedOp("warp-register", "OutlierCoder", "briquette_bitpack/cuda/outlier.cuh")


def _parts(meta: Bytes, bits: int) -> tuple[Bytes, NDArray[np.bool_]]:
    """Return the width at which each segment is packed, and whether its first code's high bits stand before it."""
    aside = meta > bits
    return np.where(aside, meta - np.uint8(bits + 1), meta).astype(np.uint8), aside

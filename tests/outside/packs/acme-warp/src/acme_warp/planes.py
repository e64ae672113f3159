"""A segment coder that writes bit planes, one ballot a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError
from briquette.ports import Chunked, PortType, PortValue, Words
from briquette.stage import Scope, Stage

from .blocks import blocks, check_codes, check_elements, stream


@dataclass(frozen=True)
class WarpPlanes(Stage):
    """Write a segment's signs and as many bit planes of its magnitudes as its largest needs.

    Parameters
    ----------
    elems_per_lane : int, optional
        Elements of a segment, in 32; a power of two up to 32, 8 by default.

    Raises
    ------
    PipelineError
        If `elems_per_lane` is anything else.
    """

    elems_per_lane: int = 8

    name: ClassVar[str] = "warp-planes"

    def __post_init__(self) -> None:
        check_elements(self.name, self.elems_per_lane)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of int32 codes."""
        check_codes(self.name, inputs["in"])
        return {"out": PortType("int32", "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk whose every segment has signs and 32 planes."""
        segments = -(-chunk // (32 * self.elems_per_lane))
        return -(-segments // 4) + segments * 33 * self.elems_per_lane

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, shape (count,), into the chunked ``out``."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        parts = [self._encode(codes[at : at + scope.chunk]) for at in range(0, scope.count, scope.chunk)]
        return {"out": Chunked.concatenate([Chunked(np.array([part.size], np.uint32), part) for part in parts])}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into codes ``in``; raise `ArchiveError` if it is no payload of this coder."""
        value = outputs["out"]
        if not isinstance(value, Chunked) or value.sizes.size != scope.chunks:
            raise ArchiveError(f"stage {self.name!r} was not given a chunked value of {scope.chunks} chunks")
        ends = np.cumsum(value.sizes, dtype=np.int64).tolist()
        if ends and ends[-1] != value.words.size:
            raise ArchiveError(f"the chunks of stage {self.name!r} have {ends[-1]} words, and there are {value.words.size}")
        codes = np.empty(scope.count, np.int32)
        for chunk, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            out = codes[chunk * scope.chunk : (chunk + 1) * scope.chunk]
            out[:] = self._decode(value.words[begin:end], out.size)
        return {"in": codes}

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC over a block."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, 32 * self.elems_per_lane)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``WarpPlanes``, in the element form."""
        geometry = {"element_form": 1, "elems_per_lane": self.elems_per_lane}
        return FusedOp("warp-register", "WarpPlanes", "acme_warp/cuda/planes.cuh", geometry=geometry)

    def _encode(self, codes: NDArray[Any]) -> Words:
        """Return the words of one chunk."""
        rows = blocks(codes, 32 * self.elems_per_lane)
        negative = rows >> np.uint32(31) == 1
        magnitude = np.where(negative, np.uint32(0) - rows, rows)
        widths = [int(top).bit_length() for top in magnitude.max(axis=1)]
        meta = np.array(widths, np.uint8)
        parts = [np.concatenate([meta, np.zeros(-meta.size % 4, np.uint8)]).view("<u4")]
        for width, signs, values in zip(widths, negative, magnitude, strict=True):
            if width:
                planes = values >> np.arange(width, dtype=np.uint32)[:, None] & np.uint32(1)
                bits = np.concatenate([signs[None], planes]).astype(np.uint8)
                parts.append(np.packbits(bits, axis=1, bitorder="little").reshape(-1).view("<u4"))
        return np.concatenate(parts).astype(np.uint32)

    def _decode(self, words: Words, count: int) -> NDArray[np.int32]:
        """Return the codes of one chunk."""
        span, each = 32 * self.elems_per_lane, self.elems_per_lane
        segments = -(-count // span)
        data = words.astype("<u4").view(np.uint8)
        lead = segments + -segments % 4
        widths = data[:segments].astype(np.int64)
        lengths = np.where(widths > 0, (widths + 1) * each, 0)
        sound = data.size >= lead and widths.max() <= 32 and not data[segments:lead].any()
        if not sound or lead // 4 + int(lengths.sum()) != words.size:
            raise ArchiveError(f"a chunk of {words.size} words cannot have been written by stage {self.name!r}")
        rows = np.zeros((segments, span), np.uint32)
        at = lead
        for row, width, length in zip(rows, widths.tolist(), lengths.tolist(), strict=True):
            if width:
                bits = np.unpackbits(data[at : at + 4 * length].reshape(width + 1, -1), axis=1, bitorder="little")
                for plane in range(width):
                    row |= bits[1 + plane].astype(np.uint32) << np.uint32(plane)
                row[:] = np.where(bits[0] == 1, np.uint32(0) - row, row)
                at += 4 * length
        return stream(rows, count)

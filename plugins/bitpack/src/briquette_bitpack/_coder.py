"""What the coders of this pack share: segments with a byte of metadata each, and tiles in its spare bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from briquette.declare import FusionAccess, FusionSpec
from briquette.errors import ArchiveError
from briquette.ports import Chunked, PortType, PortValue
from briquette.stage import Stage

from . import _tiled
from ._segments import BLOCK, check_codes, check_segment


@dataclass(frozen=True)
class SegmentCoder(Stage):
    """A coder of segments; a subclass adds its name, `forward`, `inverse`, `cost` and policy."""

    segment: int = 32

    optional_inputs: ClassVar[tuple[str, ...]] = (_tiled.PORT,)

    def __post_init__(self) -> None:
        check_segment(self.name, self.segment)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of codes, and tiles that have no room."""
        check_codes(self.name, inputs["in"])
        _tiled.check(self.name, inputs, self.segment)
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def most_bits(self, dtype: np.dtype[np.generic]) -> int:
        """Return the bits of a code in the widest segment."""
        return 8 * dtype.itemsize

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk whose every segment is as wide as can be."""
        segments = -(-chunk // self.segment)
        most = segments * (self.segment // BLOCK) * self.most_bits(types["in"].numpy)
        return -(-segments // 4) + most + _tiled.max_words(types, chunk)

    def payload(self, outputs: Mapping[str, PortValue]) -> Chunked:
        """Return what is to be decoded; raise `ArchiveError` where that is no chunked value."""
        value = outputs["out"]
        if not isinstance(value, Chunked):
            raise ArchiveError(f"stage {self.name!r} was given a stream to decode, not a chunked value")
        return value

    def spare_meta_bits(self, dtype: str) -> int:
        """Return the high bits of a segment's byte that it never takes: 3 for 16-bit codes, 2 for 32, 1 for 64."""
        return _tiled.spare_bits(dtype)

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC over `segment`."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, self.segment)

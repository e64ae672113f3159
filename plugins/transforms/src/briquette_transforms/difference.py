"""Differences of successive words: of a whole array, and within byte-chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage

from .chunks import check_chunk_bytes, check_stream, words


@dataclass(frozen=True)
class Difference(Stage):
    """Replace every element but the first by its difference from the one before, modulo 2^bits.

    Elements count as unsigned words of their width, whatever their type. The state runs over the whole array, so the stage
    runs alone; ``chunk-difference`` starts anew at every chunk and fuses.
    """

    name: ClassVar[str] = "difference"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream."""
        check_stream(self.name, inputs["in"])
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Take the differences of ``in``, shape (count,)."""
        given = words(inputs["in"])
        out = given.copy()
        np.subtract(given[1:], given[:-1], out=out[1:])
        return {"out": out.view(scope.types["out"].numpy)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Sum ``out`` up to the elements ``in``."""
        given = words(outputs["out"])
        return {"in": np.cumsum(given, dtype=given.dtype).view(scope.types["in"].numpy)}


@dataclass(frozen=True)
class ChunkDifference(Stage):
    """Replace every element of a chunk but its first by its difference from the one before, modulo 2^bits.

    Elements count as unsigned words of their width, whatever their type.

    Parameters
    ----------
    chunk_bytes : {4096, 8192, 16384}, optional
        Bytes of a chunk; 16384 by default.

    Raises
    ------
    PipelineError
        If `chunk_bytes` is anything else.

    Notes
    -----
    The method is the DIFF component of the LC framework (Burtscher et al., Texas State University) without its change of
    representation, which is ``negabinary`` or ``zigzag`` here.
    """

    chunk_bytes: int = 16384

    name: ClassVar[str] = "chunk-difference"

    def __post_init__(self) -> None:
        check_chunk_bytes(self.name, self.chunk_bytes)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type, for floating-point values the unsigned one that holds their bits.

        Raises `PipelineError` for anything but a stream.
        """
        check_stream(self.name, inputs["in"])
        dtype = inputs["in"].dtype
        return {"out": PortType(dtype.replace("float", "uint")) if dtype.startswith("float") else inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Take the differences of ``in``, shape (count,), chunk by chunk."""
        given = words(inputs["in"])
        chunk = self.chunk_bytes // given.itemsize
        out = given.copy()
        np.subtract(given[1:], given[:-1], out=out[1:])
        out[::chunk] = given[::chunk]
        return {"out": out.view(scope.types["out"].numpy)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Sum ``out`` up to the elements ``in``, chunk by chunk."""
        given = words(outputs["out"])
        chunk = self.chunk_bytes // given.itemsize
        whole = given.size // chunk * chunk
        out: NDArray[Any] = np.empty_like(given)
        np.cumsum(given[:whole].reshape(-1, chunk), axis=1, dtype=given.dtype, out=out[:whole].reshape(-1, chunk))
        np.cumsum(given[whole:], dtype=given.dtype, out=out[whole:])
        return {"in": out.view(scope.types["in"].numpy)}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `chunk_bytes` bytes."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.chunk_bytes, "bytes")

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy ``ChunkDifference``, for each width of words."""
        header = "briquette_transforms/cuda/chunk_difference.cuh"
        return FusedOp("chunk-cooperative", "ChunkDifference", header, geometry={"per_type": 1})

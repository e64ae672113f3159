"""Tuple order: interleaved components of tuples, one component after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.ports import PortType, PortValue
from briquette.stage import Scope

from ._chunks import STRATEGY, ByteChunkStage, Bytes, bytes_of, check_choice

SIZES: Final = tuple(range(2, 17))


@dataclass(frozen=True)
class TupleOrder(ByteChunkStage):
    """Regroup tuples of words within each chunk: x1 y1 x2 y2 ... becomes x1 x2 ... y1 y2 ...

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1, 2, 4 (default) or 8.
    size : int, optional
        Words of a tuple, 2 (default) to 16. What is left of a chunk behind its last whole tuple stays where it is.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows TUPL of the LC framework (Azami, Fallin, Burtscher, "Efficient Lossless Compression of Scientific Floating-Point
    Data on CPUs and GPUs", ASPLOS 2025).
    """

    word: int = 4
    size: int = 2

    name: ClassVar[str] = "tuple-order"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.name, "size", self.size, SIZES, "words")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream."""
        self.check_stream(inputs["in"])
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Regroup the stream ``in``, shape (count,), into ``out`` of the same shape and type."""
        return {"out": self._mapped(inputs["in"], scope, back=False)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Put ``out`` back into the order of ``in``."""
        return {"in": self._mapped(outputs["out"], scope, back=True)}

    def _mapped(self, stream: PortValue, scope: Scope, *, back: bool) -> PortValue:
        data = bytes_of(stream)
        out = data.copy()
        whole = data.size // self.chunk_bytes * self.chunk_bytes
        if whole:
            self._regroup(data[:whole].reshape(-1, self.chunk_bytes), out[:whole].reshape(-1, self.chunk_bytes), back)
        for part in self.parts(data.size, scope):
            if part.start >= whole:
                self._regroup(data[None, part], out[None, part], back)
        dtype = scope.types["in"].numpy
        return out.view(dtype.newbyteorder("<")).astype(dtype, copy=False)

    def _regroup(self, rows: Bytes, out: Bytes, back: bool) -> None:
        """Regroup the tuples of each row, a chunk, into `out`."""
        tuples = rows.shape[1] // (self.word * self.size)
        used = tuples * self.word * self.size
        shape = (self.size, tuples) if back else (tuples, self.size)
        words = rows[:, :used].reshape(len(rows), *shape, self.word)
        out[:, :used] = np.swapaxes(words, 1, 2).reshape(len(rows), used)

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `chunk_bytes` bytes."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.chunk_bytes, unit="bytes")

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy for this word and tuple size."""
        return FusedOp(STRATEGY, f"TupleOrder{self.word}x{self.size}", "briquette_lc/cuda/tuple_order.cuh")

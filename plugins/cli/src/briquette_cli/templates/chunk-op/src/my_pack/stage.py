"""An op on whole byte-chunks: each chunk of bytes becomes as many other bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage
from numpy.typing import NDArray

_SIZES: Final = (4096, 8192, 16384)
#: bytes of a word, FILL IN
_WORD: Final = 4


@dataclass(frozen=True)
class MyPack(Stage):
    """Sort the bytes of a chunk's words by their place: all lowest ones first, then all second ones, ... FILL IN.

    What is left of the last chunk behind its whole words stays where it is.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384, the default. All ops on chunks of a pipeline have the same.

    Raises
    ------
    PipelineError
        If `chunk_bytes` is anything else.
    """

    chunk_bytes: int = 16384

    name: ClassVar[str] = "my-pack"

    def __post_init__(self) -> None:
        if isinstance(self.chunk_bytes, bool) or self.chunk_bytes not in _SIZES:
            raise PipelineError(f"chunk_bytes = {self.chunk_bytes!r} of stage {self.name!r} is not one of {_SIZES}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream."""
        if inputs["in"].layout != "stream":
            raise PipelineError(f"stage {self.name!r} takes a stream, not {inputs['in']}")
        return {"out": inputs["in"]}

    # -- the NumPy form: the oracle ------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn the bytes of ``in``, shape (count,), into ``out`` of the same shape and type."""
        stream: NDArray[Any] = np.ascontiguousarray(inputs["in"])
        parts = [self._forward(chunk) for chunk in self._chunks(stream)]
        return {"out": np.concatenate([*parts, np.empty(0, np.uint8)]).view(stream.dtype)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the stream ``in`` back."""
        stream: NDArray[Any] = np.ascontiguousarray(outputs["out"])
        parts = [self._inverse(chunk) for chunk in self._chunks(stream)]
        return {"in": np.concatenate([*parts, np.empty(0, np.uint8)]).view(stream.dtype)}

    def _chunks(self, stream: NDArray[Any]) -> list[NDArray[np.uint8]]:
        data = stream.view(np.uint8)
        return [data[at : at + self.chunk_bytes] for at in range(0, data.size, self.chunk_bytes)]

    def _forward(self, chunk: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return as many bytes as `chunk` has. FILL IN."""
        whole = chunk.size // _WORD * _WORD
        return np.concatenate([chunk[:whole].reshape(-1, _WORD).T.reshape(-1), chunk[whole:]])

    def _inverse(self, chunk: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Undo it exactly. FILL IN."""
        whole = chunk.size // _WORD * _WORD
        return np.concatenate([chunk[:whole].reshape(_WORD, -1).T.reshape(-1), chunk[whole:]])

    # -- what lets it fuse ---------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over a chunk of bytes."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.chunk_bytes, "bytes")

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy ``MyPack``."""
        header = "my_pack/cuda/stage.cuh"
        return FusedOp("chunk-cooperative", "MyPack", header)

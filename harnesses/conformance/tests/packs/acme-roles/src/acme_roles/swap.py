"""An op on whole byte-chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class Swap(Stage):
    """Turn the bytes of a chunk around, then swap the bytes of each pair."""

    chunk_bytes: int = 4096

    name: ClassVar[str] = "acme-swap"

    def __post_init__(self) -> None:
        if self.chunk_bytes not in (4096, 8192, 16384):
            raise PipelineError(f"chunk_bytes = {self.chunk_bytes!r} of stage 'acme-swap' must be 4096, 8192 or 16384")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        if inputs["in"].layout != "stream":
            raise PipelineError(f"stage 'acme-swap' takes a stream, not {inputs['in']}")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        return {"out": self._each(inputs["in"], lambda piece: _paired(piece[::-1]))}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        return {"in": self._each(outputs["out"], lambda piece: _paired(piece)[::-1])}

    def _each(self, stream: PortValue, turn: Any) -> NDArray[Any]:
        array: NDArray[Any] = np.ascontiguousarray(np.asarray(stream))
        data, out = array.view(np.uint8), np.empty(array.nbytes, np.uint8)
        for at in range(0, data.size, self.chunk_bytes):
            out[at : at + self.chunk_bytes] = turn(data[at : at + self.chunk_bytes])
        return out.view(array.dtype)

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.REGION_LOCAL, self.chunk_bytes, "bytes")

    def fused_op(self) -> FusedOp:
        return FusedOp("chunk-cooperative", "Swap", "acme_roles/cuda/swap.cuh")


def _paired(piece: NDArray[np.uint8]) -> NDArray[np.uint8]:
    out = piece.copy()
    pairs = piece.size // 2
    out[: 2 * pairs] = piece[: 2 * pairs].reshape(-1, 2)[:, ::-1].reshape(-1)
    return out

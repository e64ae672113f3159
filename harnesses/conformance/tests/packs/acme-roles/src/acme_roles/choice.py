"""A TILE_SELECTOR of two modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette import tiles
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue, TileInfo
from briquette.stage import Scope, Stage

_TILE: Final = 128
_INFO: Final = TileInfo(_TILE, (0, 0))


@dataclass(frozen=True)
class Choice(Stage):
    """Leave the codes of a tile as they are (mode 0), or take differences within it (mode 1), whichever is coded shorter."""

    name: ClassVar[str] = "acme-choice"
    outputs: ClassVar[tuple[str, ...]] = ("out", "tiles")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'acme-choice' takes codes, not {inputs['in']}")
        return {"out": inputs["in"], "tiles": PortType(inputs["in"].dtype, "chunked", _INFO)}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return tiles.max_words(_INFO, chunk)

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        codes: NDArray[Any] = np.asarray(inputs["in"])
        rows = self._rows(codes)
        turned = np.diff(rows, axis=1, prepend=np.zeros((len(rows), 1), rows.dtype))
        costs = []
        for each in (rows, turned):
            words = scope.tail_cost(each.reshape(-1)[: codes.size].view(codes.dtype))
            costs.append(np.add.reduceat(words, np.arange(0, codes.size, _TILE) // scope.tail_segment) if words.size else words)
        if codes.size:
            last = codes.size - (len(rows) - 1) * _TILE
            if scope.mode_limit(last, 2) < 2:
                costs[1][-1] = np.iinfo(np.int64).max
        modes = np.argmin(costs, axis=0).astype(np.uint8) if codes.size else np.empty(0, np.uint8)
        out = np.where(modes[:, None] == 1, turned, rows).reshape(-1)[: codes.size].view(codes.dtype)
        return {"out": out, "tiles": tiles.pack(modes, np.empty(0, np.uint32), _INFO, scope.count, scope.chunk)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        deltas: NDArray[Any] = np.asarray(outputs["out"])
        modes, _ = tiles.unpack(outputs["tiles"], _INFO, scope.count, scope.chunk)
        rows = self._rows(deltas)
        rows = np.where(modes[:, None] == 1, np.cumsum(rows, axis=1, dtype=rows.dtype), rows)
        return {"in": rows.reshape(-1)[: deltas.size].view(deltas.dtype)}

    def _rows(self, stream: NDArray[Any]) -> NDArray[Any]:
        return np.pad(stream, (0, -stream.size % _TILE)).view(f"u{stream.itemsize}").reshape(-1, _TILE)

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.TILE_SELECTOR, _TILE)

    def fused_op(self) -> FusedOp:
        return FusedOp("warp-register", "Choice", "acme_roles/cuda/choice.cuh")

    def fused_aux_outputs(self) -> tuple[str, ...]:
        return ("tiles",)

"""Stages of the tests: bytes turned around within a chunk, and a coder that drops a chunk's trailing zeros."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import Chunked, PortType, PortValue
from briquette.stage import Scope, Stage


def _stream(given: PortType) -> PortType:
    if given.layout == "chunked":
        raise PipelineError("toys take a stream, not a chunked value")
    return given


def _pieces(nbytes: int, chunk: int) -> list[slice]:
    return [slice(at, min(at + chunk, nbytes)) for at in range(0, nbytes, chunk)]


@dataclass(frozen=True)
class Turn(Stage):
    """Reverse the bytes of every chunk and add a number to each, modulo 256."""

    chunk_bytes: int = 16384
    add: int = 1

    name: ClassVar[str] = "toy-turn"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": _stream(inputs["in"])}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        data: Any = np.ascontiguousarray(np.asarray(inputs["in"])).view(np.uint8)
        out = np.empty_like(data)
        for piece in _pieces(data.size, self.chunk_bytes):
            out[piece] = data[piece][::-1] + np.uint8(self.add)
        return {"out": out.view(scope.types["in"].numpy)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        data: Any = np.ascontiguousarray(np.asarray(outputs["out"])).view(np.uint8)
        out = np.empty_like(data)
        for piece in _pieces(data.size, self.chunk_bytes):
            out[piece] = data[piece][::-1] - np.uint8(self.add)
        return {"in": out.view(scope.types["in"].numpy)}

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.REGION_LOCAL, self.chunk_bytes, "bytes")

    def fused_op(self) -> FusedOp:
        params = ParamStruct((("add", "uint32"),))
        return FusedOp("chunk-cooperative", "Turn", "toychunks/cuda/toys.cuh", params)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        return {"add": self.add}


@dataclass(frozen=True)
class Trim(Stage):
    """Write the bytes of every chunk up to the last that is not zero; the last coded byte is never zero."""

    chunk_bytes: int = 16384

    name: ClassVar[str] = "toy-trim"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": PortType(_stream(inputs["in"]).dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return -(-chunk * types["in"].numpy.itemsize // 4)

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        data: Any = np.ascontiguousarray(np.asarray(inputs["in"])).view(np.uint8)
        parts = []
        for piece in _pieces(data.size, self.chunk_bytes):
            used = int(np.flatnonzero(data[piece])[-1]) + 1 if data[piece].any() else 0
            words = -(-used // 4)
            if words >= -(-data[piece].size // 4):
                used, words = data[piece].size, -(-data[piece].size // 4)
            parts.append(np.concatenate([data[piece][:used], np.zeros(4 * words - used, np.uint8)]).view(np.uint32))
        sizes = np.array([p.size for p in parts], np.uint32)
        return {"out": Chunked(sizes, np.concatenate(parts) if parts else np.empty(0, np.uint32))}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        value: Any = outputs["out"]
        data = np.zeros(scope.count * scope.types["in"].numpy.itemsize, np.uint8)
        at = 0
        for piece, size in zip(_pieces(data.size, self.chunk_bytes), value.sizes.tolist(), strict=True):
            bytes_ = value.words[at : at + size].view(np.uint8)
            at += size
            whole = -(-data[piece].size // 4)
            if size > whole or bytes_[data[piece].size :].any() or (0 < size < whole and not bytes_[-4:].any()):
                raise ArchiveError("a chunk of toy-trim is damaged")
            data[piece][: bytes_.size] = bytes_[: data[piece].size]
        return {"in": data.view(scope.types["in"].numpy)}

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.SEGMENT_CODEC, self.chunk_bytes, "bytes")

    def fused_op(self) -> FusedOp:
        return FusedOp("chunk-cooperative", "Trim", "toychunks/cuda/toys.cuh")

"""A segment coder that writes whole bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import Chunked, PortType, PortValue, Words
from briquette.stage import Scope, Stage

#: elements of a segment, and of each of its halves, which have a width of their own
_SEGMENT: Final = 64
_HALF: Final = 32
_PARAMS: Final = ParamStruct((("center", "int64"),))

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class ByteCoder(Stage):
    """Write each half of a segment of 64 codes with as many bytes a value as its largest needs (0 to the type's).

    Parameters
    ----------
    center : int, optional
        The code that costs least; 0 by default.

    Raises
    ------
    PipelineError
        If `center` is no 64-bit integer.
    """

    center: int = 0

    name: ClassVar[str] = "byte-coder"

    def __post_init__(self) -> None:
        if isinstance(self.center, bool) or not isinstance(self.center, int) or not -(2**63) <= self.center < 2**63:
            raise PipelineError(f"center = {self.center!r} of stage 'byte-coder' must be a 64-bit integer")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'byte-coder' codes 16-, 32- or 64-bit integers, not {inputs['in']}; quantize first")
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk whose every value takes the code type's full width."""
        segments = -(-chunk // _SEGMENT)
        return -(-segments // 2) + segments * _SEGMENT * types["in"].numpy.itemsize // 4

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, shape (count,), into the chunked ``out``."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        parts = [self._encode(codes[at : at + scope.chunk]) for at in range(0, scope.count, scope.chunk)]
        return {"out": Chunked.concatenate([Chunked(np.array([part.size], np.uint32), part) for part in parts])}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into codes ``in``; raise `ArchiveError` if it is no payload of this coder."""
        value, dtype = outputs["out"], scope.types["in"].numpy
        if not isinstance(value, Chunked) or value.sizes.size != scope.chunks:
            raise ArchiveError(f"stage 'byte-coder' was not given a chunked value of {scope.chunks} chunks")
        ends = np.cumsum(value.sizes, dtype=np.int64).tolist()
        if ends and ends[-1] != value.words.size:
            raise ArchiveError(f"the chunks of stage 'byte-coder' have {ends[-1]} words, and there are {value.words.size}")
        codes = np.empty(scope.count, dtype)
        for chunk, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            out = codes[chunk * scope.chunk : (chunk + 1) * scope.chunk]
            out[:] = self._decode(value.words[begin:end], out.size, dtype)
        return {"in": codes}

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC over 64."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, _SEGMENT)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``ByteCoder``."""
        return FusedOp("warp-register", "ByteCoder", "acme_coder/cuda/byte_coder.cuh", _PARAMS)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the policy's parameters: `center`."""
        return {"center": self.center}

    def _center(self, unsigned: np.dtype[Any]) -> NDArray[Any]:
        return np.array([self.center], np.int64).view(np.uint64).astype(unsigned)

    def _encode(self, codes: NDArray[Any]) -> Words:
        """Return the words of one chunk."""
        size = codes.itemsize
        values = np.pad(codes, (0, -codes.size % _SEGMENT)).view(f"u{size}")
        values = values - self._center(values.dtype)
        if codes.dtype.kind == "i":
            values = (values << values.dtype.type(1)) ^ (values.view(codes.dtype) >> (8 * size - 1)).view(values.dtype)
        halves = values.astype(f"<u{size}").view(np.uint8).reshape(-1, _HALF, size)
        used = halves.any(axis=1)
        widths = (size - used[:, ::-1].argmax(axis=1)).astype(np.uint8) * used.any(axis=1)
        payload = halves[_written(widths, size)]
        return np.concatenate([widths, np.zeros(-widths.size % 4, np.uint8), payload]).view("<u4").astype(np.uint32)

    def _decode(self, words: Words, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the codes of one chunk."""
        size, halves = dtype.itemsize, 2 * -(-count // _SEGMENT)
        data = words.astype("<u4").view(np.uint8)
        begin = halves + -halves % 4
        widths = data[:halves]
        sound = data.size >= begin and widths.max() <= size and not data[halves:begin].any()
        if not sound or begin + _HALF * int(widths.sum(dtype=np.int64)) != data.size:
            raise ArchiveError(f"a chunk of {words.size} words cannot have been written by stage 'byte-coder'")
        out = np.zeros((halves, _HALF, size), np.uint8)
        out[_written(widths, size)] = data[begin:]
        values: NDArray[Any] = out.view(f"<u{size}").reshape(-1)[:count].astype(f"u{size}")
        one = values.dtype.type(1)
        if dtype.kind == "i":
            values = (values >> one) ^ (np.zeros_like(values) - (values & one))
        values = values + self._center(values.dtype)
        return values.view(dtype)


def _written(widths: Bytes, size: int) -> NDArray[np.bool_]:
    """Return which bytes of values, shape (halves, 32, size), stand in the payload."""
    mask: NDArray[np.bool_] = np.arange(size) < widths[:, None, None]
    return np.broadcast_to(mask, (widths.size, _HALF, size))

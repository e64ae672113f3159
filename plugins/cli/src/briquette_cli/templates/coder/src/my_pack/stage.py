"""A coder: each segment of codes becomes as many 32-bit words as it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType, PortValue, Words
from briquette.stage import Scope, Stage
from numpy.typing import NDArray

#: elements of a segment, FILL IN; 32 values of b bytes are 8 b words
_SEGMENT: Final = 32


@dataclass(frozen=True)
class MyPack(Stage):
    """Write each code of a segment in as many whole bytes as the largest of the segment needs. FILL IN.

    A chunk holds first one byte a segment, the bytes of a value (0 to the code type's), and zero bytes to a whole word;
    then, segment by segment, the values in that many bytes, least significant first. Signs are folded into the lowest bit.
    FILL IN: the bytes, exactly.
    """

    name: ClassVar[str] = "my-pack"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage {self.name!r} codes 16-, 32- or 64-bit integers, not {inputs['in']}; quantize first")
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the most words of a chunk: every segment at the code type's full width."""
        segments = -(-chunk // _SEGMENT)
        return -(-segments // 4) + segments * _SEGMENT * types["in"].itemsize // 4

    # -- the NumPy form: the oracle ------------------------------------------------------------------------

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
        codes = np.empty(scope.count, scope.types["in"].numpy)
        for chunk, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            out = codes[chunk * scope.chunk : (chunk + 1) * scope.chunk]
            out[:] = self._decode(value.words[begin:end], out.size, codes.dtype)
        return {"in": codes}

    def cost(self, codes: NDArray[Any], scope: Scope) -> NDArray[np.int64]:
        """Return the words of each segment, without metadata: what a selector before this coder chooses by."""
        return _words(_widths(_folded(codes)))

    def _encode(self, codes: NDArray[Any]) -> Words:
        """Return the words of one chunk. FILL IN."""
        values = _folded(codes)
        widths = _widths(values)
        data = values.astype(values.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, _SEGMENT, codes.itemsize)
        payload = data[_written(widths, codes.itemsize)]
        return np.concatenate([widths, np.zeros(-widths.size % 4, np.uint8), payload]).view("<u4").astype(np.uint32)

    def _decode(self, words: Words, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the codes of one chunk; trust nothing. FILL IN."""
        segments, data = -(-count // _SEGMENT), words.astype("<u4").view(np.uint8)
        begin, widths = segments + -segments % 4, data[:segments]
        sound = data.size >= begin and widths.max() <= dtype.itemsize and not data[segments:begin].any()
        if not sound or begin + 4 * int(_words(widths).sum()) != data.size:
            raise ArchiveError(f"a chunk of {words.size} words cannot have been written by stage {self.name!r}")
        out = np.zeros((segments, _SEGMENT, dtype.itemsize), np.uint8)
        out[_written(widths, dtype.itemsize)] = data[begin:]
        values: NDArray[Any] = out.view(f"<u{dtype.itemsize}").reshape(-1)[:count].astype(f"u{dtype.itemsize}")
        if dtype.kind == "i":
            one = values.dtype.type(1)
            values = (values >> one) ^ (np.zeros_like(values) - (values & one))
        return values.view(dtype)

    # -- what lets it fuse ---------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC: what a segment becomes depends on its codes only."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, _SEGMENT)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``MyPack``."""
        return FusedOp("warp-register", "MyPack", "my_pack/cuda/stage.cuh")


def _words(widths: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the words that each segment takes at so many bytes a value."""
    return widths.astype(np.int64) * (_SEGMENT // 4)


def _folded(codes: NDArray[Any]) -> NDArray[Any]:
    """Return whole segments of unsigned values: zeros behind the end, the signs of signed codes in the lowest bit."""
    whole = np.pad(codes, (0, -codes.size % _SEGMENT))
    folded = whole if whole.dtype.kind == "u" else (whole << 1) ^ (whole >> (8 * whole.itemsize - 1))
    return folded.view(f"u{whole.itemsize}")


def _widths(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes a value of each segment."""
    largest: NDArray[Any] = values.reshape(-1, _SEGMENT).max(axis=1)
    shifts = np.arange(0, 8 * values.itemsize, 8).astype(values.dtype)
    return np.asarray((largest[:, None] >> shifts != 0).sum(axis=1), np.uint8)


def _written(widths: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
    """Return which bytes of values, shape (segments, 32, size), stand in the payload."""
    mask: NDArray[np.bool_] = np.arange(size) < widths[:, None, None]
    return np.broadcast_to(mask, (widths.size, _SEGMENT, size))

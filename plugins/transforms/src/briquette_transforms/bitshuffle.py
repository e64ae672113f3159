"""Bit shuffle: the bits of a chunk's words by significance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage

from .chunks import check_chunk_bytes, check_stream

_WORDS: Final = (0, 1, 2, 4, 8)
#: chunks that are turned at a time: they stay in cache
_BATCH: Final = 16


@dataclass(frozen=True)
class BitShuffle(Stage):
    """Put the bits of a chunk's words in the order of their significance, the most significant first.

    The chunk's bytes count as little-endian words of `word` bytes, B = 8 `word` bits; B successive words make a group. Of G
    groups come B planes of G words each, from the most significant bit down: word g of the plane of bit p holds bit p of the
    B words of group g, that of word i in bit i. Words that make no group follow as they are, then bytes that make no word.

    Parameters
    ----------
    word : {0, 1, 2, 4, 8}, optional
        Bytes of a word, whatever the stream's type; 4 by default. 0: a word is an element.
    chunk_bytes : {4096, 8192, 16384}, optional
        Bytes of a chunk; 16384 by default.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    The method is the BIT component of the LC framework and of PFPL (Burtscher et al., Texas State University), and that of
    bitshuffle (Masui et al., 2015); the order of planes and words is briquette's own.
    """

    word: int = 4
    chunk_bytes: int = 16384

    name: ClassVar[str] = "bit-shuffle"

    def __post_init__(self) -> None:
        if self.word not in _WORDS:
            raise PipelineError(f"word = {self.word!r} of stage {self.name!r} is not one of {', '.join(map(str, _WORDS))} bytes")
        check_chunk_bytes(self.name, self.chunk_bytes)

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream."""
        check_stream(self.name, inputs["in"])
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Shuffle ``in``, shape (count,), chunk by chunk."""
        return {"out": self._run(inputs["in"], _to_planes).view(scope.types["out"].numpy)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Put the bits of ``out`` back."""
        return {"in": self._run(outputs["out"], _from_planes).view(scope.types["in"].numpy)}

    def _run(self, stream: Any, turn: Any) -> NDArray[np.uint8]:
        array: NDArray[Any] = np.ascontiguousarray(stream)
        word, data = self.word or array.itemsize, array.view(np.uint8)
        out: NDArray[np.uint8] = data.copy()
        whole = data.size // self.chunk_bytes * self.chunk_bytes
        for begin, end, size in ((0, whole, self.chunk_bytes), (whole, data.size, data.size - whole)):
            groups = size // (8 * word * word)
            if groups:
                chunks = data[begin:end].reshape(-1, size)[:, : groups * 8 * word * word]
                turned = turn(np.ascontiguousarray(chunks).view(f"<u{word}"), groups, 8 * word)
                out[begin:end].reshape(-1, size)[:, : chunks.shape[1]] = turned.view(np.uint8)
        return out

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over `chunk_bytes` bytes."""
        return FusionSpec(FusionAccess.REGION_LOCAL, self.chunk_bytes, "bytes")

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy ``BitShuffle1`` to ``BitShuffle8``, or ``BitShuffle`` for the width of elements."""
        header = "briquette_transforms/cuda/bit_shuffle.cuh"
        if self.word == 0:
            return FusedOp("chunk-cooperative", "BitShuffle", header, geometry={"per_type": 1})
        return FusedOp("chunk-cooperative", f"BitShuffle{self.word}", header)


def _to_planes(words: NDArray[Any], groups: int, bits: int) -> NDArray[Any]:
    """Return the planes of chunks of words, shape (chunks, groups * bits)."""
    out = np.empty_like(words)
    for at in range(0, len(words), _BATCH):
        by_place = words[at : at + _BATCH].reshape(-1, groups, bits).transpose(0, 2, 1).copy("C")
        out[at : at + _BATCH].reshape(by_place.shape)[:] = _transpose(by_place)[:, ::-1]
    return out


def _from_planes(planes: NDArray[Any], groups: int, bits: int) -> NDArray[Any]:
    """Undo `_to_planes`."""
    out = np.empty_like(planes)
    for at in range(0, len(planes), _BATCH):
        by_place = planes[at : at + _BATCH].reshape(-1, bits, groups)[:, ::-1].copy("C")
        out[at : at + _BATCH].reshape(-1, groups, bits)[:] = _transpose(by_place).transpose(0, 2, 1)
    return out


def _transpose(x: NDArray[Any]) -> NDArray[Any]:
    """Transpose bit matrices in place: row i of matrix g of chunk c is x[c, i, g], which has as many bits as there are rows.

    Blocks change places, half as large each time (Warren, Hacker's Delight); matrices side by side keep NumPy's loops long.
    """
    (chunks, bits, groups), unsigned = x.shape, x.dtype.type
    step, mask = bits // 2, (1 << (bits // 2)) - 1
    while step:
        pairs = x.reshape(chunks, bits // (2 * step), 2, step * groups)
        upper, lower = pairs[:, :, 0], pairs[:, :, 1]
        moved = upper >> unsigned(step)
        moved ^= lower
        moved &= unsigned(mask)
        lower ^= moved
        moved <<= unsigned(step)
        upper ^= moved
        step //= 2
        mask ^= mask << step
    return x

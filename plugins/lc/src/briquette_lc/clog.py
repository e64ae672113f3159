"""CLOG and HCLOG: 32 subchunks, each packed with as many bits a word as its largest needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp
from briquette.errors import ArchiveError

from . import _bits
from ._chunks import STRATEGY, Bytes, ChunkCoder, Reader

SUBCHUNKS: Final = 32
FOLDED: Final = 0x80


@dataclass(frozen=True)
class Clog(ChunkCoder):
    """Pack each of 32 subchunks of a chunk with as many bits a word as its largest word needs.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1, 2, 4 (default) or 8.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows CLOG of the LC framework (Azami, Fallin, Burtscher, "Efficient Lossless Compression of Scientific Floating-Point
    Data on CPUs and GPUs", ASPLOS 2025). The byte format is briquette's own (docs/format.md).
    """

    word: int = 4

    name: ClassVar[str] = "clog"
    policy: ClassVar[str] = "Clog"
    folds: ClassVar[bool] = False

    def encode(self, data: Bytes) -> Bytes:
        """Return 32 bytes of widths, the subchunks, left-over bytes."""
        words = self.words(data)
        head, parts = np.zeros(SUBCHUNKS, np.uint8), []
        for i, (begin, end) in enumerate(_bounds(words.size)):
            part = words[begin:end]
            width = _width(part)
            if self.folds:
                folded = _fold(part)
                if (narrower := _width(folded)) < width:
                    part, width = folded, narrower
                    head[i] = FOLDED
            head[i] |= width
            parts.append(_bits.pack(part, width))
        return np.concatenate((head, *parts, data[words.nbytes :]))

    def decode(self, coded: Reader, size: int) -> Bytes:
        """Undo `encode`."""
        count = size // self.word
        head = coded.take(SUBCHUNKS).tolist()
        words = np.empty(count, f"<u{self.word}")
        for meta, (begin, end) in zip(head, _bounds(count), strict=True):
            width = meta & ~FOLDED if self.folds else meta
            if width > 8 * self.word:
                raise ArchiveError(f"a subchunk of {8 * self.word}-bit words is said to need {width} bits a word")
            part = _bits.unpack(coded, end - begin, width, self.word)
            words[begin:end] = _unfold(part) if self.folds and meta & FOLDED else part
        return np.concatenate((words.view(np.uint8), coded.take(size - count * self.word)))

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy for this word size."""
        return FusedOp(STRATEGY, f"{self.policy}{self.word}", "briquette_lc/cuda/clog.cuh")


@dataclass(frozen=True)
class HybridClog(Clog):
    """As `clog`; a subchunk's words have their signs folded into the lowest bit first where that makes them narrower.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1, 2, 4 (default) or 8.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows HCLOG of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025), which folds where it otherwise could not
    compress. The byte format is briquette's own (docs/format.md).
    """

    name: ClassVar[str] = "hclog"
    policy: ClassVar[str] = "HybridClog"
    folds: ClassVar[bool] = True


def _bounds(count: int) -> list[tuple[int, int]]:
    """Return first word and end of each subchunk."""
    return [(i * count // SUBCHUNKS, (i + 1) * count // SUBCHUNKS) for i in range(SUBCHUNKS)]


def _width(words: NDArray[Any]) -> int:
    return int(np.bitwise_or.reduce(words, initial=words.dtype.type(0))).bit_length()


def _fold(words: NDArray[Any]) -> NDArray[Any]:
    one, top = words.dtype.type(1), words.dtype.type(8 * words.itemsize - 1)
    folded: NDArray[Any] = words << one ^ (words.dtype.type(0) - (words >> top))
    return folded


def _unfold(folded: NDArray[Any]) -> NDArray[Any]:
    one = folded.dtype.type(1)
    words: NDArray[Any] = folded >> one ^ (folded.dtype.type(0) - (folded & one))
    return words

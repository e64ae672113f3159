"""Zero and repetition elimination: a bitmap says which words are kept, the kept words follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp

from . import _bitmap
from ._chunks import STRATEGY, Bytes, ChunkCoder, Reader, check_choice

PLANES: Final = (0, 8, 16, 32, 64)


@dataclass(frozen=True)
class _Elimination(ChunkCoder):
    word: int = 1
    levels: int | str = 2
    planes: int = 0

    policy: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _bitmap.check_levels(self.name, self.levels)
        check_choice(self.name, "planes", self.planes, PLANES, "planes")

    @property
    def lag(self) -> int:
        """Bytes of the bitmap that stand for a plane, 0 where it does not matter."""
        return self.chunk_bytes // (8 * self.word * self.planes) if self.planes else 0

    def kept(self, words: NDArray[Any]) -> _bitmap.Flags:
        """Return which words are kept."""
        raise NotImplementedError

    def restored(self, flags: _bitmap.Flags, kept: NDArray[Any]) -> NDArray[Any]:
        """Return all words, from which are kept and what they are."""
        raise NotImplementedError

    def encode(self, data: Bytes) -> Bytes:
        """Return bitmap, padding to whole words, kept words, left-over bytes."""
        words = self.words(data)
        flags = self.kept(words)
        bitmap = _bitmap.encode(flags, self.levels, self.lag)
        padding = np.zeros(-bitmap.size % self.word, np.uint8)
        return np.concatenate((bitmap, padding, words[flags].view(np.uint8), data[words.nbytes :]))

    def decode(self, coded: Reader, size: int) -> Bytes:
        """Undo `encode`."""
        count = size // self.word
        flags = _bitmap.decode(coded, count, self.levels, self.lag)
        coded.align(self.word)
        kept = coded.take(int(np.count_nonzero(flags)) * self.word).copy().view(f"<u{self.word}")
        return np.concatenate((self.restored(flags, kept).view(np.uint8), coded.take(size - count * self.word)))

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy for this word size, these levels and planes."""
        name = f"{self.policy}{self.word}{_bitmap.suffix(self.levels, self.planes)}"
        return FusedOp(STRATEGY, name, "briquette_lc/cuda/elimination.cuh")


@dataclass(frozen=True)
class ZeroElimination(_Elimination):
    """Keep the words that are not zero, and a bitmap of where they stand, itself coded by repetition elimination.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1 (default), 2, 4 or 8.
    levels : int or "adaptive", optional
        How often the bitmap's repeated bytes are eliminated, 0 to 4; 2 by default, which makes 2048 bytes of bitmap 256 and
        these 32. "adaptive": what is best for each chunk.
    planes : int, optional
        8, 16, 32 or 64 where a chunk holds so many bit planes, as `bit-shuffle` leaves the bits of elements: the bitmap's bytes
        are then compared with those of the plane before, which keeps fewer of them. 0 (default): with the byte before.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows RZE of the LC framework (Azami, Fallin, Burtscher, "Efficient Lossless Compression of Scientific Floating-Point
    Data on CPUs and GPUs", ASPLOS 2025), which PFPL also ends in (Fallin et al., IPDPS 2025). The byte format is briquette's
    own (docs/format.md).
    """

    name: ClassVar[str] = "zero-elimination"
    policy: ClassVar[str] = "ZeroElimination"

    def kept(self, words: NDArray[Any]) -> _bitmap.Flags:
        """Return which words are not zero."""
        flags: _bitmap.Flags = words != 0
        return flags

    def restored(self, flags: _bitmap.Flags, kept: NDArray[Any]) -> NDArray[Any]:
        """Return the kept words with zeros between them."""
        return _bitmap.spread(flags, kept)


@dataclass(frozen=True)
class RepetitionElimination(_Elimination):
    """Keep the words that differ from the word before, and a bitmap of where they stand, coded in the same way.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1 (default), 2, 4 or 8.
    levels : int or "adaptive", optional
        How often the bitmap's repeated bytes are eliminated, 0 to 4; 2 by default. "adaptive": what is best for each chunk.
    planes : int, optional
        As for `zero-elimination`.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows RRE of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025). The byte format is briquette's own
    (docs/format.md).
    """

    name: ClassVar[str] = "repetition-elimination"
    policy: ClassVar[str] = "RepetitionElimination"

    def kept(self, words: NDArray[Any]) -> _bitmap.Flags:
        """Return which words differ from the one before."""
        return _bitmap.repeats_not(words)

    def restored(self, flags: _bitmap.Flags, kept: NDArray[Any]) -> NDArray[Any]:
        """Return the kept words, each repeated up to the next."""
        return _bitmap.repeat(flags, kept)

"""Elimination of leading bits: the top bits of the words go through zero or repetition elimination, the others are all kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusedOp
from briquette.errors import ArchiveError

from . import _bitmap, _bits
from ._chunks import STRATEGY, Bytes, ChunkCoder, Reader


@dataclass(frozen=True)
class _AdaptiveElimination(ChunkCoder):
    word: int = 4
    levels: int | str = 2

    policy: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _bitmap.check_levels(self.name, self.levels)

    def marked(self, words: NDArray[Any]) -> NDArray[Any]:
        """Return numbers whose top k bits are zero exactly where those of a word are eliminated."""
        raise NotImplementedError

    def restored(self, flags: _bitmap.Flags, kept: NDArray[Any]) -> NDArray[Any]:
        """Return the top bits of all words, from which are kept and what they are."""
        raise NotImplementedError

    def top_bits(self, marked: NDArray[Any]) -> int:
        """Return the k with which fewest bits are kept, bitmap aside; the lowest of several.

        Sorted, the words whose top k bits are kept stand behind 2**(bits - k): one pass serves all k.
        """
        bits = 8 * self.word
        starts = np.array([1 << (bits - k) for k in range(1, bits + 1)], marked.dtype)
        kept = marked.size - np.searchsorted(np.sort(marked), starts)
        k = np.arange(1, bits + 1)
        return int(np.argmin(np.concatenate(([marked.size * bits], marked.size * (bits - k) + kept * k))))

    def encode(self, data: Bytes) -> Bytes:
        """Return k, bitmap, padding to 32-bit words, kept top bits, low bits, left-over bytes."""
        words = self.words(data)
        marked = self.marked(words)
        k = self.top_bits(marked)
        if k == 0:
            return data
        low = 8 * self.word - k
        flags = (marked >> marked.dtype.type(low)) != 0
        head = np.concatenate((np.array([k], np.uint8), _bitmap.encode(flags, self.levels)))
        padding = np.zeros(-head.size % 4, np.uint8)
        top = _bits.pack(words[flags] >> words.dtype.type(low), k)
        return np.concatenate((head, padding, top, _bits.pack(words, low), data[words.nbytes :]))

    def decode(self, coded: Reader, size: int) -> Bytes:
        """Undo `encode`."""
        count, bits = size // self.word, 8 * self.word
        k = int(coded.take(1)[0])
        if not 1 <= k <= bits:
            raise ArchiveError(f"a coded chunk says that {k} leading bits of {bits} are apart")
        flags = _bitmap.decode(coded, count, self.levels)
        coded.align(4)
        top = self.restored(flags, _bits.unpack(coded, int(np.count_nonzero(flags)), k, self.word))
        words = _bits.unpack(coded, count, bits - k, self.word)
        words |= top << top.dtype.type(bits - k)
        return np.concatenate((words.view(np.uint8), coded.take(size - count * self.word)))

    def fused_op(self) -> FusedOp:
        """The chunk-cooperative policy for this word size and these levels."""
        name = f"{self.policy}{self.word}{_bitmap.suffix(self.levels)}"
        return FusedOp(STRATEGY, name, "briquette_lc/cuda/adaptive.cuh")


@dataclass(frozen=True)
class AdaptiveZeroElimination(_AdaptiveElimination):
    """Eliminate the top bits of words in which they are zero; how many top bits is chosen for each chunk.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1, 2, 4 (default) or 8.
    levels : int or "adaptive", optional
        How often the bitmap's repeated bytes are eliminated, 0 to 4; 2 by default. "adaptive": what is best for each chunk.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows RAZE of the LC framework (Azami, Fallin, Burtscher, "Efficient Lossless Compression of Scientific Floating-Point
    Data on CPUs and GPUs", ASPLOS 2025). The byte format is briquette's own (docs/format.md).
    """

    name: ClassVar[str] = "adaptive-zero-elimination"
    policy: ClassVar[str] = "AdaptiveZeroElimination"

    def marked(self, words: NDArray[Any]) -> NDArray[Any]:
        """Return the words."""
        return words

    def restored(self, flags: _bitmap.Flags, kept: NDArray[Any]) -> NDArray[Any]:
        """Return the kept bits with zeros between them."""
        return _bitmap.spread(flags, kept)


@dataclass(frozen=True)
class AdaptiveRepetitionElimination(_AdaptiveElimination):
    """Eliminate the top bits of words in which they are those of the word before; how many is chosen for each chunk.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1, 2, 4 (default) or 8.
    levels : int or "adaptive", optional
        How often the bitmap's repeated bytes are eliminated, 0 to 4; 2 by default. "adaptive": what is best for each chunk.

    Raises
    ------
    PipelineError
        If a parameter is anything else.

    Notes
    -----
    Follows RARE of the LC framework (Azami, Fallin, Burtscher, ASPLOS 2025). The byte format is briquette's own
    (docs/format.md).
    """

    name: ClassVar[str] = "adaptive-repetition-elimination"
    policy: ClassVar[str] = "AdaptiveRepetitionElimination"

    def marked(self, words: NDArray[Any]) -> NDArray[Any]:
        """Return the bits in which each word differs from the one before; the first one's is 0."""
        marked = words.copy()
        marked[1:] ^= words[:-1]
        return marked

    def restored(self, flags: _bitmap.Flags, kept: NDArray[Any]) -> NDArray[Any]:
        """Return the kept bits, each repeated up to the next."""
        return _bitmap.repeat(flags, kept)

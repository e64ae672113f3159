"""Values of ports as they lie in an archive, and the checksums that stand over them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from ..errors import ArchiveError, UsageError
from ..ports import Chunked, Words
from .layout import BLOCK, BlockMap, serial


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array`, copied where it is not aligned: a buffer may start at any address, compiled code reads whole words."""
    return array if array.flags.aligned else array.copy()


class Blocks:
    """The checksums of a segment's payload, each verified once; an empty segment has none."""

    def __init__(self, index: int, payload: memoryview, starts: list[int], checksums: list[int]) -> None:
        self._index = index
        self._payload = payload
        self._starts = starts  # one more than there are blocks
        self._checksums = checksums
        self._good = bytearray(len(checksums))

    def verify(self, begin: int, end: int, map: BlockMap) -> None:
        """Verify blocks `begin` to `end` - 1."""
        todo = [k for k in range(begin, min(end, len(self._good))) if not self._good[k]]
        if not todo:
            return
        for k, found in zip(todo, map(self._digest, todo), strict=True):
            if found != self._checksums[k]:
                raise ArchiveError(
                    f"segment {self._index}, block {k} of {len(self._good)} is damaged "
                    f"({self._starts[k + 1] - self._starts[k]} bytes, checksum {found:016x}, not {self._checksums[k]:016x})"
                )
            self._good[k] = 1

    def _digest(self, k: int) -> int:
        return xxh3_64_intdigest(self._payload[self._starts[k] : self._starts[k + 1]])


class ChunkedView:
    """The value of a chunked port, in the archive's memory.

    Attributes
    ----------
    sizes : uint32 array, shape (chunks,)
        Words of each chunk.
    words : uint32 array, shape (sum of sizes,)
        Not verified: call `verify` for the chunks that are read.
    count : int
        Elements the stream codes.
    chunk : int
        Elements of a chunk.
    """

    def __init__(self, sizes: Words, words: Words, count: int, chunk: int, blocks: Blocks) -> None:
        self.sizes = sizes
        self._words = words
        self.count = count
        self.chunk = chunk
        self._blocks = blocks

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.sizes)

    @cached_property
    def offsets(self) -> NDArray[np.uint64]:
        """First word of each chunk, then the number of words: uint64, shape (chunks + 1,)."""
        offsets = np.empty(len(self.sizes) + 1, np.uint64)
        offsets[0] = 0
        np.cumsum(self.sizes, dtype=np.uint64, out=offsets[1:])
        return offsets

    @cached_property
    def words(self) -> Words:
        return aligned(self._words)

    @property
    def value(self) -> Chunked:
        """Sizes and words, as stages take them."""
        return Chunked(self.sizes, self.words)

    def cut(self, first: int, last: int) -> Chunked:
        """Return sizes and words of chunks `first` to `last` - 1."""
        part = Chunked(self.sizes, self._words).cut(first, last)
        return Chunked(part.sizes, aligned(part.words))

    def verify(self, begin: int = 0, end: int | None = None, *, map: BlockMap = serial) -> None:
        """Verify the checksums of the blocks that hold chunks `begin` to `end` - 1 (default: all).

        Raises
        ------
        ArchiveError
            Naming the segment and the block that is damaged.
        """
        begin, end = _range(begin, end, self.chunks, "chunks")
        self._blocks.verify(begin // BLOCK, -(-end // BLOCK) if end > begin else 0, map)


class StreamView:
    """The value of a stream port, or raw data, in the archive's memory.

    Attributes
    ----------
    values : array, shape (count,)
        Not verified: call `verify` for the elements that are read.
    """

    def __init__(self, values: NDArray[Any], block: int, blocks: Blocks) -> None:
        self._values = values
        self._block = block
        self._blocks = blocks

    @cached_property
    def values(self) -> NDArray[Any]:
        return aligned(self._values)

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self._values)

    def cut(self, begin: int, end: int) -> NDArray[Any]:
        """Return elements `begin` to `end` - 1."""
        return aligned(self._values[begin:end])

    def verify(self, begin: int = 0, end: int | None = None, *, map: BlockMap = serial) -> None:
        """Verify the checksums of the blocks that hold elements `begin` to `end` - 1 (default: all)."""
        begin, end = _range(begin, end, self.count, "elements")
        self._blocks.verify(begin // self._block, -(-end // self._block) if end > begin else 0, map)


def _range(begin: int, end: int | None, n: int, what: str) -> tuple[int, int]:
    stop = n if end is None else end
    if not 0 <= begin <= stop <= n:
        raise UsageError(f"{what} {begin} to {stop} are not a range within {n}")
    return begin, stop

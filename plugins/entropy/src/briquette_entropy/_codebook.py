"""Codebooks of `huffman`: optimal lengths of at most 16 bits, canonical codes, and their compact form in the archive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError

from ._bits import put_bits
from ._symbols import EXTRA, SYMBOLS, bit_lengths, follows

#: bits of a code, at most
LIMIT: Final = 16
#: bits by which a decoder's first table is indexed; longer codes take a second step
PRIMARY: Final = 11
#: the compact form of the longest codebook there is; what is longer is refused unread
_MOST_BYTES: Final = 1 << 16
#: codebooks that are kept
_KEPT: Final = 8

Lengths = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Codebook:
    """A code for each context.

    Attributes
    ----------
    lengths : uint8 array, shape (contexts, SYMBOLS)
        Bits of each symbol's code; 0: the symbol does not occur.
    """

    lengths: Lengths

    @property
    def contexts(self) -> int:
        return self.lengths.shape[0]

    @cached_property
    def codes(self) -> NDArray[np.uint32]:
        """The code of each symbol times 32, plus its length; shape (contexts, SYMBOLS)."""
        codes = np.zeros(self.lengths.shape, np.uint32)
        for context in range(self.contexts):
            starts, meanings = self.ranges(context)
            bits = meanings & 31
            codes[context, meanings >> 14] = starts >> (LIMIT - bits) << 5 | bits
        return codes

    def ranges(self, context: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return what the next 16 bits mean: the least that begin with each code, ascending, and what the codes stand for.

        Bits 0 to 4 of the latter are the code's length, 5 to 10 the number of bits behind it, 11 to 13 the context after it, 14
        to 26 the symbol.
        """
        lengths = self.lengths[context]
        used = np.flatnonzero(lengths)
        used = used[np.argsort(lengths[used], kind="stable")]
        bits = lengths[used].astype(np.int64)
        spans = 1 << (LIMIT - bits)
        meanings = bits | EXTRA[used] << 5 | follows(self.contexts)[used] << 11 | used << 14
        return (np.cumsum(spans) - spans).astype(np.uint32), meanings.astype(np.uint32)

    @cached_property
    def tables(self) -> NDArray[np.uint32]:
        """What codes stand for, in two steps: 2048 entries a context by the first 11 bits, then groups of 32 by the next 5.

        0 is no code. Where codes are longer than 11 bits, the entry of the first step has bit 31 set, and its lower bits say
        where in the array its group begins.
        """
        group = 1 << (LIMIT - PRIMARY)
        size = self.contexts << PRIMARY
        first = np.empty((self.contexts, 1 << PRIMARY), np.uint32)
        second: list[NDArray[np.uint32]] = []
        for context in range(self.contexts):
            _, meanings = self.ranges(context)
            entries = np.zeros(1 << LIMIT, np.uint32)
            filled = np.repeat(meanings, 1 << (LIMIT - (meanings & 31)))
            entries[: filled.size] = filled
            groups = entries.reshape(-1, group)
            first[context] = groups[:, 0]
            long = np.flatnonzero((groups != groups[:, :1]).any(axis=1))
            first[context, long] = 1 << 31 | (size + group * np.arange(long.size))
            size += group * long.size
            second.append(groups[long].reshape(-1))
        return np.concatenate([first.reshape(-1), *second])

    @staticmethod
    def of(counts: NDArray[np.integer]) -> Codebook:
        """Return the codebook that codes symbols counted so, shape (contexts, SYMBOLS), with the fewest bits."""
        lengths = np.stack([_shortest(row) for row in counts])
        lengths.flags.writeable = False  # it is kept, see `unpack`
        return Codebook(lengths)

    def pack(self) -> bytes:
        """Return the compact form; no bytes where nothing is coded."""
        if not self.lengths.any():
            return b""
        flat = self.lengths.reshape(-1)
        used = np.flatnonzero(flat)
        values, sizes = np.zeros((2, 2 * used.size + 1), np.int64)
        # before each symbol, and behind the last, the symbols left out: 1111 and how many, as an Elias gamma code
        gaps = np.diff(np.concatenate([[-1], used, [flat.size]])) - 1
        width = bit_lengths(gaps.astype(np.uint64)).astype(np.int64)
        values[::2] = np.where(gaps > 0, 15 << np.maximum(2 * width - 1, 0) | gaps, 0)
        sizes[::2] = np.where(gaps > 0, 2 * width + 3, 0)
        # the length: as before, one more, one less, or 1110 and what it is
        lengths = flat[used].astype(np.int64)
        steps = np.diff(lengths, prepend=LIMIT // 2)
        values[1::2] = np.select([steps == 0, steps == 1, steps == -1], [0, 2, 6], 14 << 4 | lengths - 1)
        sizes[1::2] = np.select([steps == 0, steps == 1, steps == -1], [1, 2, 3], 8)
        ends = np.cumsum(sizes)
        words = np.zeros(-(-int(ends[-1]) // 32), np.uint32)
        put_bits(words, (ends - sizes)[sizes > 0], sizes[sizes > 0], values[sizes > 0].astype(np.uint64))
        packed = words.astype(">u4").tobytes()[: -(-int(ends[-1]) // 8)]
        _keep(packed, self)
        return packed


#: the codebooks that were made or unpacked last, by their compact form: what was just made is not taken apart again
_recent: dict[tuple[bytes, int], Codebook] = {}


def _keep(packed: bytes, book: Codebook) -> None:
    _recent.setdefault((packed, book.contexts), book)  # the one that is there may have its tables made
    for oldest in list(_recent)[:-_KEPT]:
        _recent.pop(oldest, None)


def unpack(packed: bytes, contexts: int) -> Codebook:
    """Return the codebook whose compact form is `packed`; raise `ArchiveError` where there is none."""
    book = _recent.get((packed, contexts))
    if book is None:
        book = _unpacked(packed, contexts)
        _keep(packed, book)
    return book


def _unpacked(packed: bytes, contexts: int) -> Codebook:
    size = contexts * SYMBOLS
    flat = np.zeros(size, np.uint8)
    if packed:
        if len(packed) > _MOST_BYTES:
            raise _damaged(f"it has {len(packed)} bytes, and none has more than {_MOST_BYTES}")
        flat[:] = _parse("".join(f"{byte:08b}" for byte in packed), size)
    lengths = flat.reshape(contexts, SYMBOLS)
    for context in range(contexts):
        used = lengths[context][lengths[context] > 0].astype(np.int64)
        room = int((1 << (LIMIT - used)).sum())
        if room > 1 << LIMIT or (used.size > 1 and room != 1 << LIMIT) or (used.size == 1 and used[0] != 1):
            raise _damaged(f"the lengths of context {context} are those of no code")
    lengths.flags.writeable = False
    return Codebook(lengths)


def _damaged(why: str) -> ArchiveError:
    return ArchiveError(f"the codebook of stage 'huffman' is damaged: {why}")


def _parse(text: str, size: int) -> list[int]:
    found: list[int] = []
    at, before = 0, LIMIT // 2
    while len(found) < size:
        ones = next((i for i in range(4) if text[at + i : at + i + 1] != "1"), 4)
        at += min(ones + 1, 4)
        if ones == 4:
            zeros = next((i for i in range(18) if text[at + i : at + i + 1] != "0"), 18)
            number = text[at + zeros : at + 2 * zeros + 1]
            at += 2 * zeros + 1
            skipped = int(number, 2) if number else 0
            if not skipped or skipped > size - len(found):
                raise _damaged("a gap goes beyond the alphabet")
            found += [0] * skipped
            continue
        if ones == 3:
            before = int(text[at : at + 4] or "0", 2) + 1
            at += 4
        else:
            before += (0, 1, -1)[ones]
        if not 1 <= before <= LIMIT or at > len(text):
            raise _damaged("a length is outside 1 to 16, or missing")
        found.append(before)
    if at > len(text) or len(text) - at > 7 or "1" in text[at:]:
        raise _damaged("its bits do not end where the alphabet does")
    return found


def _shortest(counts: NDArray[np.integer]) -> Lengths:
    """Return the lengths, of at most `LIMIT`, that take the fewest bits: package-merge (Larmore and Hirschberg, 1990)."""
    lengths = np.zeros(counts.size, np.uint8)
    used = np.flatnonzero(counts)
    if used.size < 2:
        lengths[used] = 1
        return lengths
    used = used[np.argsort(counts[used], kind="stable")]
    leaves = counts[used].astype(np.int64)
    packages = leaves[:0]
    levels: list[NDArray[np.bool_]] = []
    for _ in range(LIMIT):
        both = np.concatenate([leaves, packages])
        order = np.argsort(both, kind="stable")
        levels.append(order < leaves.size)
        packages = both[order][: both.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    take = 2 * leaves.size - 2
    for is_leaf in reversed(levels):
        taken = int(np.count_nonzero(is_leaf[:take]))
        lengths[used[:taken]] += 1
        take = 2 * (take - taken)
    return lengths

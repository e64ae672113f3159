"""Huffman coding of a whole stream of integers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.harness import Direction, StagedKernel
from briquette.params import Scalar
from briquette.ports import Chunked, PortType, PortValue, Words
from briquette.stage import PrimeContext, Scope, Stage

from ._bits import put_bits
from ._chunks import chunks_of, coded_types, damaged, fitting, most_words, recalled, stored
from ._codebook import LIMIT, Codebook, unpack
from ._framed import bytes_of, check_room, framed, most_framed, unframed
from ._kernels import HUFFMAN, Program
from ._symbols import BASE, EXTRA, IS_RUN, MAX_CONTEXTS, SYMBOLS, Tokens, fold, follows, tokens, unfold

#: the least 16 bits that begin with each code, and what it stands for
Ranges = tuple[list[int], list[int]]

#: elements that the NumPy form turns to tokens at a time
_BATCH: Final = 1 << 18


@dataclass(frozen=True)
class Huffman(Stage):
    """Code integers by how often they occur in the whole stream, runs of zeros as one symbol.

    Integers of any width and magnitude: small ones have a symbol each, larger ones one for each bit length, with the bits
    below the highest behind it. Every archive chunk is coded by itself, so chunks are decoded in parallel and parts of an
    array without the rest. A chunk of zeros takes no words; one that would not shrink is stored as it is.

    The input may also be chunked: what a coder wrote, or values that a quantizer kept aside. Then its words' bytes are coded.

    Parameters
    ----------
    contexts : int, optional
        Codebooks, 1 to 8; 8 by default. Which one codes a symbol depends on the one before: the first follows runs of zeros,
        the others numbers of 1 bit, 2 bits and so on, the last all larger ones. More suit data whose activity varies.

    Raises
    ------
    PipelineError
        If `contexts` is not an integer in that range.

    Notes
    -----
    Huffman coding (1952) of prediction residuals with one global codebook is what SZ (Di and Cappello, 2016) and cuSZ (Tian et
    al., 2020) do. Code lengths are limited by package-merge (Larmore and Hirschberg, 1990); codes are canonical (Schwartz and
    Kallick, 1964). Classes of large numbers with raw bits are those of Elias gamma codes.
    """

    contexts: int = MAX_CONTEXTS

    name: ClassVar[str] = "huffman"

    def __post_init__(self) -> None:
        given = self.contexts
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_CONTEXTS:
            raise PipelineError(f"contexts = {given!r} of stage 'huffman' must be an integer from 1 to {MAX_CONTEXTS}")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of integers or a chunked input."""
        return coded_types(self.name, inputs, words=True)

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk that is stored as it is."""
        return 1 + most_framed(chunk) if types["in"].layout == "chunked" else most_words(types, chunk)

    # -- counting ------------------------------------------------------------------------------------------

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Count the symbols of the whole stream, and resolve the codebook."""
        given: PortValue | None = ctx.source if ctx.chunked is None else ctx.chunked
        if given is None:
            raise PipelineError("stage 'huffman' counts its input before it codes it; it runs alone")
        counts = np.zeros((self.contexts, SYMBOLS), np.int64)
        for found, _, _ in self._tokens(given, ctx.chunk):
            flat = np.bincount(found.contexts * SYMBOLS + found.symbols, minlength=counts.size)
            counts += flat.reshape(counts.shape)
        return self.state_of(counts)

    def state_of(self, counts: NDArray[Any]) -> Mapping[str, Scalar]:
        """Return the state of a run whose symbols were counted so, shape (contexts, SYMBOLS)."""
        return {"codebook": Codebook.of(counts).pack()}

    def codebook(self, state: Mapping[str, Scalar]) -> Codebook:
        """Return the codebook of a run; raise `ArchiveError` where the state holds none."""
        packed = state.get("codebook")
        if not isinstance(packed, bytes):
            raise ArchiveError("the run record holds no codebook for stage 'huffman'")
        return unpack(packed, self.contexts)

    def _tokens(self, given: PortValue, chunk: int) -> Iterator[tuple[Tokens, NDArray[Any], int]]:
        """Yield the tokens of runs of whole chunks, with their elements and the elements of a chunk."""
        after = follows(self.contexts)
        if isinstance(given, Chunked):
            for part in bytes_of(given):
                yield tokens(fold(part), part.size, after), part, part.size
            return
        size = max(_BATCH // chunk, 1) * chunk
        for at in range(0, len(given), size):
            part = np.asarray(given[at : at + size])
            yield tokens(fold(part), chunk, after), part, chunk

    # -- the NumPy reference -------------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, of shape (count,) or chunked, into the chunked ``out``."""
        given = inputs["in"]
        if isinstance(given, Chunked):
            check_room(given, scope.chunk, self.name)
        codes = self.codebook(scope.state).codes
        coded = Chunked.concatenate([_encode(*found, codes) for found in self._tokens(given, scope.chunk)])
        if not isinstance(given, Chunked):
            return {"out": coded}
        sizes = np.zeros(given.sizes.size, np.uint32)
        sizes[given.sizes > 0] = coded.sizes
        return {"out": framed(given.sizes, Chunked(sizes, coded.words))}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into ``in``; raise `ArchiveError` if it is no payload of this coder."""
        decode = _Decoder(partial(self.codebook, scope.state))
        if scope.types["in"].layout == "stream":
            dtype = scope.types["in"].numpy
            out = np.zeros(scope.count, dtype)
            for begin, end, words in chunks_of(outputs["out"], scope, self.name):
                out[begin:end] = decode(words, end - begin, dtype)
            return {"in": out}
        sizes, inner = unframed(fitting(outputs["out"], scope, self.name), scope.chunk, self.name)
        byte = np.dtype(np.uint8)
        some = np.flatnonzero(sizes)  # chunks with values kept aside are few, as a rule
        at = np.cumsum(inner.sizes, dtype=np.int64)
        parts = zip(sizes[some].tolist(), (at - inner.sizes)[some].tolist(), at[some].tolist(), strict=True)
        made = [decode(inner.words[begin:end], 4 * size, byte).view(np.uint32) for size, begin, end in parts]
        return {"in": Chunked(sizes, np.concatenate([np.empty(0, np.uint32), *made]))}

    # -- declarations --------------------------------------------------------------------------------------

    def random_access_spec(self) -> FusionSpec:
        """SEGMENT_CODEC: a chunk is decoded by itself, and parts of an array without the rest."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, 1)

    def staged_kernel(self, direction: Direction, dialect: str, types: Mapping[str, PortType]) -> StagedKernel | None:
        """Return the program of ``cuda/huffman.cuh``; on GPUs for streams only."""
        if types["in"].layout == "chunked" and dialect != "c++":
            return None
        return partial(Program, self, HUFFMAN, direction)


class _Decoder:
    """Decodes chunks; asks for the codebook when it is first needed."""

    def __init__(self, codebook: Callable[[], Codebook]) -> None:
        self._codebook = codebook

    @cached_property
    def _book(self) -> list[Ranges]:
        return _ranges(self._codebook())

    def __call__(self, words: Words, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the `count` elements of a chunk."""
        raw = -(-count * dtype.itemsize // 4)
        if words.size > raw:
            raise damaged(Huffman.name)
        if words.size == raw:
            return recalled(words, count, dtype, Huffman.name)
        return unfold(_decode(words, count, self._book), dtype) if words.size else np.zeros(count, dtype)


def _encode(found: Tokens, codes: NDArray[Any], chunk: int, book: NDArray[np.uint32]) -> Chunked:
    """Return the payload of whole chunks."""
    entries = book[found.contexts, found.symbols]
    lengths, extra = (entries & 31).astype(np.int64), EXTRA[found.symbols]
    ends = np.cumsum(lengths + extra)
    first = np.searchsorted(found.at, np.arange(0, codes.size, chunk))  # of each chunk, its first token
    behind = np.append(first[1:], found.at.size)
    starts = ends[first] - lengths[first] - extra[first]
    bits = ends[behind - 1] - starts
    sizes = -(-bits // 32)
    counts = np.minimum(codes.size - chunk * np.arange(first.size), chunk)
    raw = -(-counts * codes.itemsize // 4)
    zero = (behind - first == 1) & ~np.take(codes, found.at[first]).astype(bool)
    sizes[zero] = 0
    as_is = (sizes >= raw) & ~zero
    sizes[as_is] = raw[as_is]
    offsets = np.cumsum(sizes) - sizes
    words = np.zeros(int(sizes.sum()), np.uint32)
    coded = np.repeat(~zero & ~as_is, behind - first)
    at = np.repeat(32 * offsets - starts, behind - first)[coded] + (ends - lengths - extra)[coded]
    put_bits(words, at, lengths[coded], (entries[coded] >> 5).astype(np.uint64))
    at, extra, values = at + lengths[coded], extra[coded], found.raw[coded]
    high = extra > 32
    put_bits(words, at[high], extra[high] - 32, values[high] >> np.uint64(32))
    low = extra > 0
    narrow = np.minimum(extra, 32)
    put_bits(words, (at + extra - narrow)[low], narrow[low], (values & np.uint64(0xFFFFFFFF))[low])
    for i in np.flatnonzero(as_is):
        words[offsets[i] : offsets[i] + raw[i]] = stored(codes[i * chunk : i * chunk + counts[i]])
    return Chunked(sizes.astype(np.uint32), words)


def _ranges(book: Codebook) -> list[Ranges]:
    """Return the ranges of each context, with one that is no code behind the last."""
    found = ([part.tolist() for part in book.ranges(context)] for context in range(book.contexts))
    return [([*starts, sum(1 << (LIMIT - (m & 31)) for m in meanings)], [*meanings, 0]) for starts, meanings in found]


def _decode(words: Words, count: int, book: list[Ranges]) -> NDArray[np.uint64]:
    """Return the numbers of a chunk that is neither zeros nor stored as it is."""
    where, meanings = _walk([*words.tolist(), 0], count, book)
    symbols, bits = meanings >> 14, meanings & 31
    extra, runs = EXTRA[symbols], IS_RUN[symbols]
    padded = np.append(words, np.zeros(4, np.uint32)).astype(np.uint64)  # the last may run over the end, to be found out
    values = BASE[symbols] + _get(padded, where + bits, extra)
    spans = np.where(runs, values, 1).astype(np.int64)
    reached = np.cumsum(spans)
    last = int(np.searchsorted(reached, count))
    if last == len(where) or reached[last] != count or not spans[: last + 1].all():
        raise damaged(Huffman.name)
    end = int(where[last] + bits[last] + extra[last])
    if -(-end // 32) != words.size or (end % 32 and int(words[-1]) << end % 32 & 0xFFFFFFFF):
        raise damaged(Huffman.name)
    values[runs] = 0
    return np.repeat(values[: last + 1], spans[: last + 1])


def _walk(words: list[int], count: int, book: list[Ranges]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where codes begin and what they stand for, from the first bit to the last or for `count` of them."""
    where: list[int] = []
    found: list[int] = []
    at, context, end = 0, len(book) - 1, 32 * (len(words) - 1)
    while at < end and len(where) < count:
        word = at >> 5
        bits = (words[word] << 32 | words[word + 1]) >> 48 - (at & 31) & 0xFFFF
        starts, meanings = book[context]
        meaning = meanings[bisect_right(starts, bits) - 1]
        if not meaning:
            break
        where.append(at)
        found.append(meaning)
        at += (meaning & 31) + (meaning >> 5 & 63)
        context = meaning >> 11 & 7
    if not where:
        raise damaged(Huffman.name)
    return np.array(where), np.array(found)


def _get(words: NDArray[np.uint64], at: NDArray[np.int64], bits: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return fields of up to 63 bits that begin at bit `at`."""
    high = np.maximum(bits - 32, 0)
    found = np.zeros(at.size, np.uint64)
    for begin, width in ((at, high), (at + high, np.minimum(bits, 32))):
        pair = words[begin // 32] << np.uint64(32) | words[begin // 32 + 1]
        field = pair << (begin % 32).astype(np.uint64) >> np.uint64(32)
        found = found << width.astype(np.uint64) | field >> (32 - width).astype(np.uint64)
    return found

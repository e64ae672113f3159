"""Huffman: optimal codes of limited length, their compact form, symbols of every magnitude, and hostile codebooks."""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any

import numpy as np
import pytest
from entropy_data import archive_of
from hypothesis import given
from hypothesis import strategies as st

import briquette as bq
from briquette.archive import Archive, ArchiveWriter
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked
from briquette_conformance.resealing import reseal
from briquette_entropy._codebook import LIMIT, Codebook, _unpacked, unpack
from briquette_entropy._symbols import BASE, EXTRA, IS_RUN, LARGE, RUNS, SYMBOLS, fold, follows, tokens, unfold
from briquette_entropy.huffman import Huffman


def bits_of_huffman(counts: list[int]) -> int:
    """The textbook's algorithm: the sum of all merged weights."""
    heap = [c for c in counts if c]
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        total += merged
        heapq.heappush(heap, merged)
    return total


def counted(values: list[int]) -> np.ndarray[Any, Any]:
    counts = np.zeros((1, SYMBOLS), np.int64)
    counts[0, 1 : len(values) + 1] = values
    return counts


@given(st.lists(st.integers(0, 50), min_size=2, max_size=300).filter(lambda c: sum(map(bool, c)) > 1))
def test_codes_that_need_no_limit_are_as_short_as_huffmans(values: list[int]) -> None:
    lengths = Codebook.of(counted(values)).lengths[0].astype(np.int64)
    assert int((lengths * counted(values)[0]).sum()) == bits_of_huffman(values)


def test_lengths_are_limited_and_use_up_all_codes() -> None:
    fibonacci = [1, 1]
    while len(fibonacci) < 60:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    lengths = Codebook.of(counted(fibonacci)).lengths[0]
    used = lengths[lengths > 0].astype(np.int64)
    assert used.size == 60
    assert used.max() == LIMIT
    assert (1 << (LIMIT - used)).sum() == 1 << LIMIT


def test_every_symbol_at_once_has_a_code() -> None:
    book = Codebook.of(np.ones((2, SYMBOLS), np.int64))
    assert book.lengths.min() > 0
    assert np.array_equal(_unpacked(book.pack(), 2).lengths, book.lengths)


@given(st.lists(st.lists(st.sampled_from([0, 0, 1, 3, 90, 10**6]), min_size=1, max_size=40), min_size=1, max_size=8))
def test_the_compact_form_comes_back(rows: list[list[int]]) -> None:
    counts = np.concatenate([counted(row) for row in rows])
    book = Codebook.of(counts)
    assert np.array_equal(_unpacked(book.pack(), len(rows)).lengths, book.lengths)


def test_no_code_begins_with_another_and_tables_say_what_ranges_say() -> None:
    rng = np.random.default_rng(0)
    book = Codebook.of((rng.geometric(0.001, (3, SYMBOLS)) * (rng.random((3, SYMBOLS)) < 0.5)).astype(np.int64) ** 2)
    for context in range(3):
        starts, meanings = (part.astype(np.int64) for part in book.ranges(context))
        assert np.array_equal(starts[1:], (starts + (1 << (LIMIT - (meanings & 31))))[:-1])
        codes = book.codes[context, meanings >> 14].astype(np.int64)
        assert np.array_equal(codes >> 5 << (LIMIT - (codes & 31)), starts)
        bits = rng.integers(0, 1 << LIMIT, 500)
        entries = book.tables[(context << 11) + (bits >> 5)].astype(np.int64)
        linked = entries >> 31 == 1
        entries[linked] = book.tables[(entries[linked] & 0x7FFFFFFF) + (bits[linked] & 31)]
        assert np.array_equal(entries, meanings[np.searchsorted(starts, bits, "right") - 1])
        assert linked.any()


def test_the_alphabet_has_a_symbol_for_every_number_and_every_run() -> None:
    numbers = np.array([1, 4095, 4096, 8191, 8192, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)
    found = tokens(numbers, 8192, follows(8))
    assert np.array_equal(BASE[found.symbols] + found.raw, numbers)
    assert not IS_RUN[found.symbols].any()
    assert all(int(r) < 1 << int(e) for r, e in zip(found.raw, EXTRA[found.symbols], strict=True))
    for length in (1, 2, 15, 16, 17, 31, 32, 1000, 65_535, 65_536):
        found = tokens(np.zeros(length, np.uint64), 65_536, follows(8))
        assert found.symbols.size == 1
        assert RUNS < found.symbols[0] < LARGE
        assert int(BASE[found.symbols[0]] + found.raw[0]) == length


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_folding_comes_back(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([0, 1, info.min, info.max, info.min + 1, info.max // 3], dtype)
    assert np.array_equal(unfold(fold(x), np.dtype(dtype)), x)
    if dtype.startswith("i"):
        assert fold(np.array([0, -1, 1, -2, 2], dtype)).tolist() == [0, 1, 2, 3, 4]


def test_runs_end_with_their_chunk() -> None:
    found = tokens(np.zeros(25, np.uint64), 10, follows(8))
    assert found.at.tolist() == [0, 10, 20]
    assert (found.symbols - RUNS).tolist() == [10, 10, 5]
    assert found.contexts.tolist() == [7, 7, 7]


def test_contexts_follow_the_symbol_before() -> None:
    found = tokens(np.array([9, 0, 0, 1, 2, 3, 200, 5], np.uint64), 8192, follows(4))
    assert found.contexts.tolist() == [3, 3, 0, 1, 2, 2, 3]


def test_more_contexts_code_a_stream_of_changing_activity_in_fewer_bytes() -> None:
    rng = np.random.default_rng(0)
    scale = np.repeat(2.0 ** rng.integers(0, 8, 400), 500)
    x = (rng.standard_normal(scale.size) * scale).astype(np.int32)
    sizes = [len(archive_of(bq.chain(Huffman(contexts=c)), x)) for c in (1, 4, 8)]
    assert sizes[0] > 1.03 * sizes[1]
    assert sizes[1] > 1.02 * sizes[2]


@pytest.mark.parametrize("contexts", [0, 9, True, 2.0])
def test_contexts_outside_their_range_are_refused(contexts: Any) -> None:
    with pytest.raises(PipelineError, match=r"must be an integer from 1 to 8"):
        Huffman(contexts=contexts)


def rebuilt(data: bytes, codebook: Any) -> bytes:
    """Return the archive with another codebook in its run record."""
    archive = Archive.open(data)
    state = {} if codebook is None else {"huffman": {"codebook": codebook}}
    header = dataclasses.replace(archive.header, state=state)
    writer = ArchiveWriter(header, 1)
    held = archive.chunked(0).cut(0, -(-header.count // header.chunk))
    writer.add_chunked(Chunked(np.array(held.sizes), np.array(held.words)), header.count)
    return bytes(writer.finish())


@pytest.mark.parametrize("target", ["numpy", "host"])
def test_a_codebook_that_is_none_is_refused(target: str) -> None:
    x = np.random.default_rng(0).poisson(40, 9000).astype(np.int32)
    data = archive_of(bq.chain("huffman"), x)
    good = Archive.open(data).header.state["huffman"]["codebook"]
    assert isinstance(good, bytes)
    assert np.array_equal(bq.decompress(rebuilt(data, good), target=target), x)
    for bad in (
        None,
        b"",
        7,
        "text",
        good[:-1],
        good + b"\0",
        b"\xff" * 40,
        b"\0" * 4000,
        bytes([good[0] ^ 16]) + good[1:],
    ):
        with pytest.raises(ArchiveError):
            bq.decompress(rebuilt(data, bad), target=target)


def test_a_codebook_longer_than_any_is_refused_unread() -> None:
    with pytest.raises(ArchiveError, match="it has 70000 bytes"):
        unpack(b"\xff" * 70_000, 8)


@given(st.binary(max_size=200), st.integers(1, 8))
def test_any_bytes_are_a_codebook_or_refused(packed: bytes, contexts: int) -> None:
    try:
        book = unpack(packed, contexts)
    except ArchiveError:
        return
    assert book.lengths.max() <= LIMIT


def chunked_pipe(**contexts: int) -> bq.Pipeline:
    """A pipeline whose only coder of values is a run-length coder, the words of which are coded once more."""
    return bq.chain("run-length", Huffman(**contexts))


@pytest.mark.parametrize("contexts", [1, 8])
def test_words_of_another_coder_are_coded_as_bytes(contexts: int) -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(rng.poisson(9, 6000), rng.integers(1, 30, 6000)).astype(np.int32)
    x[20_000:40_000] = 0
    pipe = chunked_pipe(contexts=contexts)
    plan = pipe.plan(x, target="host")
    assert [s.kind for s in plan.forward.steps] == ["kernel", "kernel"]
    data = archive_of(pipe, x)
    assert len(data) < 0.6 * len(archive_of(bq.chain("run-length"), x))
    for threads in (1, 3):
        assert archive_of(pipe, x, "host", threads=threads) == data
    for target in ("numpy", "host"):
        assert np.array_equal(bq.decompress(data, target=target), x)
        assert np.array_equal(bq.decompress(data, target=target, flat=slice(9000, 30_000)), x[9000:30_000])


@pytest.mark.parametrize("target", ["numpy", "host"])
def test_a_chunk_that_claims_too_many_words_is_refused(target: str) -> None:
    x = np.arange(9000, dtype=np.int32) // 50
    data = archive_of(chunked_pipe(), x)
    archive = Archive.open(data)
    at = archive.segments[0].at.payload_at
    for claim in (0, 1, 4 * 8192 + 65, 2**32 - 1):
        with pytest.raises(ArchiveError):
            bq.decompress(bytes(reseal(bytearray(data[:at] + claim.to_bytes(4, "little") + data[at + 4 :]))), target=target)


def test_long_runs_of_zero_bytes_are_cut() -> None:
    zeros = np.zeros(200_000, np.uint64)
    found = tokens(zeros, zeros.size, follows(8))
    assert found.at.tolist() == [0, 65_536, 131_072, 196_608]

"""Laws of the NumPy form."""

from __future__ import annotations

import numpy as np
import pytest
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import CODE_DTYPES, Chunked, PortType
from briquette.stage import Scope

from my_pack.stage import MyPack

CHUNK = 8192


def scope_of(dtype: str, n: int) -> Scope:
    types = {"in": PortType(dtype)}
    return Scope({}, {**types, **MyPack().output_types(types)}, n, CHUNK)


def codes_of(dtype: str, n: int) -> np.ndarray:
    """Return random codes, each segment's of a width of its own."""
    rng, limits = np.random.default_rng(1), np.iinfo(dtype)
    shifts = np.repeat(rng.integers(0, limits.bits, -(-n // 32), dtype), 32)[:n]
    return rng.integers(limits.min, limits.max, n, dtype, endpoint=True) >> shifts


@pytest.mark.parametrize("dtype", sorted(CODE_DTYPES))
def test_inverse_undoes_forward_and_keeps_to_its_size(dtype: str) -> None:
    stage = MyPack()
    for n in (0, 1, 31, 32, 33, 1000, CHUNK, CHUNK + 1):
        for codes in (codes_of(dtype, n), np.zeros(n, dtype), np.full(n, np.iinfo(dtype).min, dtype)):
            scope = scope_of(dtype, n)
            coded = stage.forward({"in": codes}, scope)["out"]
            assert isinstance(coded, Chunked)
            assert coded.sizes.size == scope.chunks
            assert coded.sizes.max(initial=0) <= stage.max_chunk_words("out", scope.types, min(n, CHUNK))
            assert np.array_equal(stage.inverse({"out": coded}, scope)["in"], codes)


def test_a_known_answer() -> None:
    """FILL IN: a few words that you worked out by hand."""
    coded = MyPack().forward({"in": np.array([1, -1, 2], np.int32)}, scope_of("int32", 3))["out"]
    assert isinstance(coded, Chunked)
    assert coded.words.tolist() == [1, 0x040102, *[0] * 7]  # a byte a value; folded 2, 1, 4


def test_cost_is_what_is_written() -> None:
    codes = codes_of("int32", 1000)
    segments = -(-codes.size // 32)
    coded = MyPack().forward({"in": codes}, scope_of("int32", codes.size))["out"]
    assert isinstance(coded, Chunked)
    cost = MyPack().cost(codes, scope_of("int32", codes.size))
    assert cost.shape == (segments,)
    assert int(cost.sum()) == coded.words.size - -(-segments // 4)


def test_what_no_forward_pass_wrote_is_refused() -> None:
    scope = scope_of("int32", 1000)
    coded = MyPack().forward({"in": codes_of("int32", 1000)}, scope)["out"]
    assert isinstance(coded, Chunked)
    forged = [coded.words[:-1], np.append(coded.words, np.uint32(0))]
    for word in range(8):  # the metadata of 32 segments
        forged.append(coded.words.copy())
        forged[-1][word] ^= np.uint32(0x80000000)
    for words in forged:
        with pytest.raises(ArchiveError):
            MyPack().inverse({"out": Chunked(np.array([words.size], np.uint32), words)}, scope)
    with pytest.raises(ArchiveError):
        MyPack().inverse({"out": Chunked(coded.sizes[:0], coded.words)}, scope)


def test_values_are_refused() -> None:
    with pytest.raises(PipelineError, match="quantize first"):
        MyPack().output_types({"in": PortType("float32")})

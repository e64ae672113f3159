"""Run lengths: the bytes of the format by hand, and words that no encoder writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from briquette.errors import ArchiveError
from briquette.ports import Chunked, PortType
from briquette.stage import Scope
from briquette_entropy.run_length import RunLength


def scope(dtype: str, count: int) -> Scope:
    return Scope({}, {"in": PortType(dtype), "out": PortType(dtype, "chunked")}, count, 64)


def coded(x: np.ndarray[Any, Any]) -> list[int]:
    value = RunLength().forward({"in": x}, scope(x.dtype.name, x.size))["out"]
    assert isinstance(value, Chunked)
    return value.words.tolist()


def decoded(words: list[int], dtype: str, count: int) -> list[int]:
    value = Chunked(np.array([len(words)], np.uint32), np.array(words, np.uint32))
    found = RunLength().inverse({"out": value}, scope(dtype, count))["in"]
    assert isinstance(found, np.ndarray)
    return found.tolist()


def test_lengths_then_values() -> None:
    x = np.array([7, 8, 5, 5, 5, 5, 9, *[3] * 10, 1], np.int32)
    assert coded(x) == [2, 2 | 3 << 16, 1 | 9 << 16, 7, 8, 5, 9, 3, 1]


def test_values_of_two_bytes_fill_words() -> None:
    x = np.array([*[2] * 9, 4, 6], np.uint16)
    assert coded(x) == [1, 8 << 16, 2 | 4 << 16, 6]


def test_a_run_that_saves_nothing_is_no_run_and_a_chunk_that_does_not_shrink_is_stored() -> None:
    assert coded(np.array([1, 1, 2, 2, 3, 3], np.int32)) == [1, 1, 2, 2, 3, 3]


def test_zeros_take_no_words() -> None:
    assert coded(np.zeros(64, np.int16)) == []


@pytest.mark.parametrize(
    "words",
    [
        [6, 1, 2],  # more runs than words
        [2**32 - 1, 0, 0],
        [1, 0 | 20 << 16, 2],  # beyond the chunk
        [1, 30 | 0 << 16, 2],
        [1, 0 | 8 << 16, 2],  # values missing
        [1, 0 | 15 << 16, 2, 3],  # values left over
        [1, 0 | 15 << 16, 2 | 1 << 16],  # padding
    ],
)
def test_words_of_no_encoder_are_refused(words: list[int]) -> None:
    with pytest.raises(ArchiveError):
        decoded(words, "uint16", 16)


def test_what_the_words_above_come_from_is_read() -> None:
    assert decoded([1, 0 | 15 << 16, 2], "uint16", 16) == [2] * 16

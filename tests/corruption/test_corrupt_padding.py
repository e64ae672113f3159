"""Bytes that only fill up words: zero, or the archive is damaged, on every target alike."""

from __future__ import annotations

import numpy as np
import pytest
from hostile.archives import EB, SEGMENTED, Sound, field, sound
from hostile.campaigns import TARGETS

import briquette
from briquette.archive import Archive
from briquette.errors import ArchiveError
from briquette_conformance.resealing import reseal

MAIN, SIDE = 0, 1  # the segments of the coder and of the values kept aside


def archive_of(preset: str, name: str) -> Sound:
    return next(made for made in sound(preset) if made.name == f"{preset}-{name}")


def word_at(data: bytes, segment: int, chunk: int, word: int) -> int:
    """Return where in an archive a word of a chunk stands."""
    archive = Archive.open(data)
    assert word < archive.chunked(segment).sizes[chunk]
    return archive.segments[segment].at.payload_at + 4 * (int(archive.chunked(segment).offsets[chunk]) + word)


def refused(data: bytes, at: int, target: str) -> None:
    assert data[at] == 0
    damaged = bytearray(data)
    damaged[at] = 1
    with pytest.raises(ArchiveError):
        briquette.decompress(reseal(damaged), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("preset", SEGMENTED)
def test_padding_after_the_widths_of_segments(preset: str, target: str) -> None:
    data = archive_of(preset, "float32-none").data
    for byte in (2, 3):  # the last chunk has 37 elements, two segments of 32
        refused(data, word_at(data, MAIN, 1, 0) + byte, target)


@pytest.mark.parametrize("target", TARGETS)
def test_padding_after_a_list_of_positions(target: str) -> None:
    data = archive_of("fast", "float64-scattered").data
    assert data[word_at(data, SIDE, 0, 0)] == 9
    for byte in (2, 3):  # nine positions of two bytes
        refused(data, word_at(data, SIDE, 0, 5) + byte, target)


@pytest.mark.parametrize("target", TARGETS)
def test_padding_after_the_lengths_of_runs_of_values(target: str) -> None:
    data = archive_of("fast", "float32-block-equal").data
    for byte in (2, 3):  # head, one run of positions in two words, one run of values: its count, its length in half a word
        refused(data, word_at(data, SIDE, 0, 4) + byte, target)


@pytest.mark.parametrize("target", TARGETS)
def test_bits_after_the_bitmap_of_a_partial_chunk(target: str) -> None:
    x = field("float32", "none")
    x[8192::2] = np.nan
    data = bytes(briquette.compress(x, EB, target="numpy"))
    head = int.from_bytes(data[word_at(data, SIDE, 1, 0) :][:4], "little")
    assert head >> 28 & 3 == 1, "the last chunk has no bitmap"
    refused(data, word_at(data, SIDE, 1, 2) + 3, target)  # 37 bits in two words

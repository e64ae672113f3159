"""Modes and side words of tiles: as words of a port, in spare bits of metadata, against slow references and damage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette import tiles
from briquette.errors import ArchiveError, DeclarationError, PipelineError
from briquette.ports import Chunked, PortType, TileInfo

FOUR = TileInfo(64, (0, 0, 1, 2))
ODD = TileInfo(32, (1, 0, 3, 0, 2))  # 3 bits a mode, which straddle words


def drawn(info: TileInfo, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    modes = rng.integers(0, len(info.side_words), tiles.tiles_of(count, info)).astype(np.uint8)
    return modes, rng.integers(0, 2**32, sum(info.side_words[m] for m in modes.tolist()), dtype=np.uint32)


def reference(modes: list[int], side: list[int], info: TileInfo, count: int, chunk: int) -> list[list[int]]:
    """Return each chunk's words, straight from the format page."""
    out, modes, side = [], list(modes), list(side)
    for begin in range(0, count, chunk):
        mine = [modes.pop(0) for _ in range(-(-min(chunk, count - begin) // info.span))]
        number = sum(m << (i * info.mode_bits) for i, m in enumerate(mine))
        heads = -(-len(mine) * info.mode_bits // 32)
        words = [number >> (32 * k) & 0xFFFFFFFF for k in range(heads)]
        out.append(words + [side.pop(0) for m in mine for _ in range(info.side_words[m])])
    assert not modes
    assert not side
    return out


@pytest.mark.parametrize("info", [FOUR, ODD, TileInfo(1, (0, 1)), TileInfo(7, (0,) * 200)], ids=str)
def test_the_port_holds_what_the_format_page_says(info: TileInfo) -> None:
    chunk = info.span * 40
    for count in (0, 1, info.span, info.span + 1, chunk - 1, chunk, chunk + 1, 3 * chunk, 5 * chunk + 2 * info.span + 1):
        modes, side = drawn(info, count, count)
        value = tiles.pack(modes, side, info, count, chunk)
        expected = reference(modes.tolist(), side.tolist(), info, count, chunk)
        assert value.sizes.tolist() == [len(e) for e in expected]
        assert value.words.tolist() == [word for chunk_words in expected for word in chunk_words]
        assert max(value.sizes.tolist(), default=0) <= tiles.max_words(info, chunk)
        back = tiles.unpack(value, info, count, chunk)
        assert (back[0].tolist(), back[1].tolist()) == (modes.tolist(), side.tolist())


def test_pieces_of_chunks_join_to_the_whole() -> None:
    modes, side = drawn(ODD, 1000, 1)
    whole = tiles.pack(modes, side, ODD, 1000, 128)
    pieces = [tiles.unpack(whole.cut(c, c + 2), ODD, min(256, 1000 - 128 * c), 128) for c in range(0, 8, 2)]
    assert np.concatenate([p[0] for p in pieces]).tolist() == modes.tolist()
    assert np.concatenate([p[1] for p in pieces]).tolist() == side.tolist()


@pytest.mark.parametrize(
    ("sizes", "words", "message"),
    [
        ([2], [0, 0], "there should be 2 chunks"),
        ([1, 2], [0, 0], "there are 2 words"),
        ([0, 1], [0], "chunk 0 of the tiles has 0 words, fewer than the 1"),
        ([1, 1], [2, 0], "the modes of chunk 0 of the tiles need 2 words, but it has 1"),
        ([2, 1], [2, 7, 2], "the modes of chunk 1 of the tiles need 2 words, but it has 1"),
        ([1, 2], [0, 0, 5], "the modes of chunk 1 of the tiles need 1 words, but it has 2"),
        ([1, 1], [0, 4], "padding after the modes"),
        ([1, 1], [1 << 31, 0], "padding after the modes"),
    ],
)
def test_damage_to_the_port_is_refused(sizes: list[int], words: list[int], message: str) -> None:
    """128 + 1 elements, in tiles of 64: two tiles, then one."""
    value = Chunked(np.array(sizes, np.uint32), np.array(words, np.uint32))
    with pytest.raises(ArchiveError, match=message):
        tiles.unpack(value, FOUR, 129, 128)


def test_modes_that_are_not_there_are_refused() -> None:
    with pytest.raises(ArchiveError, match="tile 1 claims mode 5; the modes are 0 to 4"):
        tiles.unpack(Chunked(np.array([1], np.uint32), np.array([1 | 5 << 3], np.uint32)), ODD, 64, 64)
    with pytest.raises(ArchiveError, match="a stream"):
        tiles.unpack(np.zeros(3, np.uint32), ODD, 64, 64)
    with pytest.raises(ArchiveError, match="tile 0 claims mode 7"):
        tiles.collect(np.array([3, 1]), TileInfo(64, (0,) * 7), 32, 2)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=9), st.lists(st.integers(0, 6), max_size=4), st.integers(0, 600))
def test_any_words_are_read_or_refused(words: list[int], sizes: list[int], count: int) -> None:
    value = Chunked(np.array(sizes, np.uint32), np.array(words, np.uint32))
    try:
        modes, side = tiles.unpack(value, FOUR, count, 128)
    except ArchiveError:
        return
    again = tiles.pack(modes, side, FOUR, count, 128)
    assert (again.sizes.tolist(), again.words.tolist()) == (sizes, words)


@pytest.mark.parametrize(("spare", "segment"), [(1, 16), (2, 32), (3, 64), (24, 64), (1, 8)])
@pytest.mark.parametrize("info", [FOUR, TileInfo(64, (0,) * 5), TileInfo(64, (0,) * 16)], ids=str)
def test_modes_in_metadata(info: TileInfo, spare: int, segment: int) -> None:
    if 64 // segment * spare < info.mode_bits:
        with pytest.raises(PipelineError, match="too few for the"):
            tiles.check_spare("acme", PortType("int32", "chunked", info), segment, spare)
        return
    assert tiles.check_spare("acme", PortType("int32", "chunked", info), segment, spare) is info
    for count in (0, 1, 64, 65, 640, 641):
        modes = drawn(info, count, count)[0]
        if modes.size:
            modes[-1] = int(modes[-1]) % tiles.room((count - 1) % 64 + 1, segment, spare)
        values = tiles.spread(modes, info, count, segment, spare)
        assert values.shape == (-(-count // segment),)
        per = 64 // segment
        for i, value in enumerate(values.tolist()):
            assert value == int(modes[i // per]) >> (i % per * spare) & ((1 << spare) - 1)
        assert tiles.collect(values, info, segment, spare).tolist() == modes.tolist()


def test_a_short_last_tile_has_room_for_fewer_modes() -> None:
    assert [tiles.room(n, 32, 1) for n in (1, 32, 33, 64, 65)] == [2, 2, 4, 4, 8]
    assert tiles.spread(np.array([3, 1], np.uint8), FOUR, 65, 32, 1).tolist() == [1, 1, 1]
    with pytest.raises(DeclarationError, match="mode 2 of the stream's last tile"):
        tiles.spread(np.array([3, 2], np.uint8), FOUR, 65, 32, 1)


def test_spare_bits_that_hold_no_mode_must_be_zero() -> None:
    assert tiles.collect(np.array([1, 1, 0, 0]), TileInfo(64, (0,) * 4), 16, 1).tolist() == [3]
    with pytest.raises(ArchiveError, match="spare bits"):
        tiles.collect(np.array([1, 1, 0, 1]), TileInfo(64, (0,) * 4), 16, 1)
    with pytest.raises(ArchiveError, match="claims mode 4"):
        tiles.collect(np.array([4, 0]), FOUR, 32, 3)


def test_what_does_not_fit_is_refused_when_it_is_made() -> None:
    modes, side = drawn(FOUR, 129, 3)
    with pytest.raises(DeclarationError, match="129 elements make 3 tiles of 64"):
        tiles.pack(modes[:2], side, FOUR, 129, 128)
    with pytest.raises(DeclarationError, match="side words were given"):
        tiles.pack(modes, np.append(side, side[:1]), FOUR, 129, 128)
    with pytest.raises(PipelineError, match="does not divide the archive chunk of 100"):
        tiles.pack(modes, side, FOUR, 129, 100)
    with pytest.raises(PipelineError, match="a segment of 48 elements does not divide the tile of 64"):
        tiles.check_spare("acme", PortType("int32", "chunked", FOUR), 48, 2)
    with pytest.raises(PipelineError, match=r"not chunked\[int32\]"):
        tiles.check_spare("acme", PortType("int32", "chunked"), 32, 2)


def test_types_of_tiles() -> None:
    assert (FOUR.mode_bits, ODD.mode_bits, TileInfo(1, (0,) * 256).mode_bits) == (2, 3, 8)
    assert str(PortType("int32", "chunked", FOUR)) == "tiles of 64[int32]"
    with pytest.raises(PipelineError, match="chunked"):
        PortType("int32", "stream", FOUR)
    for span, side in ((0, (0, 0)), (32, (0,)), (32, (0,) * 257), (32, (0, -1))):
        with pytest.raises(PipelineError, match="2 to 256 modes"):
            TileInfo(span, side)

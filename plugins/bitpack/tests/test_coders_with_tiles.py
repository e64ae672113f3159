"""The segment coders with a selector's tiles in their payload: against a slow reference from docs/format.md, and damage."""

from __future__ import annotations

import numpy as np
import pytest

from briquette import tiles
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType, TileInfo
from briquette.stage import Scope
from briquette_bitpack.bitplane import AdaptiveBitplane
from briquette_bitpack.outlier import OutlierCoder
from briquette_bitpack.plainrate import PlainRate

CODE_TYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64"]
CODERS = [PlainRate, AdaptiveBitplane, OutlierCoder]
Coder = PlainRate | AdaptiveBitplane | OutlierCoder
SPARE = {2: 3, 4: 2, 8: 1}
FOUR = TileInfo(128, (0, 0, 1, 2))


def scope(stage: Coder, dtype: str, info: TileInfo | None, count: int, chunk: int) -> Scope:
    types = {"in": PortType(dtype)}
    if info is not None:
        types["tiles"] = PortType(dtype, "chunked", info)
    return Scope({}, {**types, **stage.output_types(types)}, count, chunk)


def drawn(dtype: str, segment: int, info: TileInfo, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return codes whose width differs from segment to segment, modes and side words."""
    rng = np.random.default_rng(seed)
    bits = 8 * np.dtype(dtype).itemsize
    keep = np.repeat(rng.integers(0, bits + 1, count // segment + 1), segment)[:count].astype(np.uint64)
    raw = rng.integers(0, 2**64, count, dtype=np.uint64)
    codes = np.where(keep == 0, np.uint64(0), raw >> np.minimum(np.uint64(64) - keep, np.uint64(63))).astype(dtype)
    modes = rng.integers(0, len(info.side_words), tiles.tiles_of(count, info)).astype(np.uint8)
    if count:
        modes[-1] %= min(len(info.side_words), tiles.room((count - 1) % info.span + 1, segment, SPARE[codes.itemsize]))
    side = rng.integers(0, 2**32, sum(info.side_words[m] for m in modes.tolist()), dtype=np.uint32)
    return codes, modes, side


def plain(stage: Coder, codes: np.ndarray) -> tuple[int, bytes]:
    """Return byte and words of one segment as the coder writes them without tiles, which other tests check."""
    value = stage.forward({"in": codes}, scope(stage, codes.dtype.name, None, codes.size, stage.segment))["out"]
    return int(value.words[0]), value.words[1:].tobytes()


def reference(stage: Coder, codes: np.ndarray, modes: list[int], side: list[int], info: TileInfo, chunk: int) -> list[bytes]:
    spare, side, out = SPARE[codes.itemsize], list(side), []
    for begin in range(0, codes.size, chunk):
        meta, words = [], b""
        for a in range(begin, min(begin + chunk, codes.size), stage.segment):
            mode, at = modes[a // info.span], a % info.span // stage.segment
            width, packed = plain(stage, codes[a : a + stage.segment])
            meta.append(width | (mode >> at * spare & (1 << spare) - 1) << (8 - spare))
            if at == 0:
                for _ in range(info.side_words[mode]):
                    words += side.pop(0).to_bytes(4, "little")
            words += packed
        out.append(bytes(meta) + bytes(-len(meta) % 4) + words)
    return out


def check(stage: Coder, dtype: str, info: TileInfo, count: int, chunk: int, seed: int = 0) -> Chunked:
    codes, modes, side = drawn(dtype, stage.segment, info, count, seed)
    here = scope(stage, dtype, info, count, chunk)
    given = tiles.pack(modes, side, info, count, chunk)
    value = stage.forward({"in": codes, "tiles": given}, here)["out"]
    expected = reference(stage, codes, modes.tolist(), side.tolist(), info, chunk)
    assert value.sizes.tolist() == [len(e) // 4 for e in expected]
    assert value.words.tobytes() == b"".join(expected)
    assert max(value.sizes.tolist(), default=0) <= stage.max_chunk_words("out", here.types, chunk)
    back = stage.inverse({"out": value}, here)
    np.testing.assert_array_equal(back["in"], codes)
    assert back["in"].dtype == codes.dtype
    assert back["tiles"].sizes.tolist() == given.sizes.tolist()
    assert back["tiles"].words.tolist() == given.words.tolist()
    return value


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("coder", CODERS)
def test_matches_the_reference_for_every_residue(coder: type[Coder], dtype: str) -> None:
    for n in [*range(71), 127, 128, 129, 160, 161, 255, 256, 257, 640]:
        check(coder(), dtype, FOUR, n, 256, n)


@pytest.mark.parametrize(
    ("segment", "info"),
    [
        (64, FOUR),
        (32, TileInfo(96, (0, 3, 0, 1, 0, 0, 2, 5))),
        (64, TileInfo(64, (1, 0))),
        (1024, TileInfo(2048, (0, 1, 2))),
        (32, TileInfo(256, (0,) * 200)),
    ],
    ids=str,
)
@pytest.mark.parametrize("coder", CODERS)
def test_matches_the_reference_for_every_geometry(coder: type[Coder], segment: int, info: TileInfo) -> None:
    for dtype in ("int16", "int32", "uint64"):
        for n in (1, segment, segment + 1, info.span - 1, info.span, info.span + 1, 2 * info.span, 3 * info.span + segment + 5):
            check(coder(segment=segment), dtype, info, n, 2 * info.span, n)


@pytest.mark.parametrize("coder", CODERS)
def test_the_worst_case_is_the_declared_one(coder: type[Coder]) -> None:
    stage, info = coder(), TileInfo(64, (0, 2))
    here = scope(stage, "int32", info, 640, 640)
    modes, side = np.ones(10, np.uint8), np.zeros(20, np.uint32)
    codes = np.full(640, np.iinfo(np.int32).min)
    value = stage.forward({"in": codes, "tiles": tiles.pack(modes, side, info, 640, 640)}, here)["out"]
    assert int(value.sizes[0]) == stage.max_chunk_words("out", here.types, 640)


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("coder", CODERS)
def test_the_cost_is_what_is_written(coder: type[Coder], dtype: str) -> None:
    for segment in (32, 96):
        stage = coder(segment=segment)
        for n in (0, 1, segment, segment + 1, 10 * segment - 1):
            codes = drawn(dtype, segment, FOUR, n, n)[0]
            words = stage.cost(codes, scope(stage, dtype, None, n, 10 * segment))
            assert words.dtype == np.int64
            assert words.tolist() == [len(plain(stage, codes[a : a + segment])[1]) // 4 for a in range(0, n, segment)]
    assert stage.spare_meta_bits(dtype) == SPARE[np.dtype(dtype).itemsize]


@pytest.mark.parametrize("coder", CODERS)
def test_tiles_that_have_no_room_are_refused(coder: type[Coder]) -> None:
    stage = coder(segment=64)
    types = {"in": PortType("int64"), "tiles": PortType("int64", "chunked", TileInfo(64, (0, 0, 1, 1)))}
    with pytest.raises(PipelineError, match="the 1 segments of a tile have 1 spare bits each, too few for the 2 bits"):
        stage.output_types(types)
    assert stage.output_types({**types, "in": PortType("int32")})["out"] == PortType("int32", "chunked")
    with pytest.raises(PipelineError, match="a segment of 64 elements does not divide the tile of 96"):
        stage.output_types({**types, "tiles": PortType("int32", "chunked", TileInfo(96, (0, 1)))})
    with pytest.raises(PipelineError, match="takes modes and side values of tiles, not int32"):
        stage.output_types({**types, "tiles": PortType("int32")})


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
@pytest.mark.parametrize("coder", CODERS)
def test_a_flipped_bit_of_metadata_is_refused_or_read_as_what_it_says(coder: type[Coder], dtype: str) -> None:
    stage, info, count, chunk = coder(), TileInfo(128, (0, 0, 1)), 300, 256
    here = scope(stage, dtype, info, count, chunk)
    value = check(stage, dtype, info, count, chunk, 7)
    before = stage.inverse({"out": value}, here)
    second = int(value.sizes[0])  # 8 segments in the first chunk, 2 in the second: the rest of its word is padding
    for at, bit in [(at, bit) for at in (0, 1, second) for bit in range(32)]:
        words = value.words.copy()
        words[at] ^= np.uint32(1 << bit)
        try:
            back = stage.inverse({"out": Chunked(value.sizes, words)}, here)
        except ArchiveError:
            continue
        assert at < second or bit < 16, "padding that is not zero was read"
        # sizes still add up: only a mode with as many side words as the one before can have been read
        spare = bit % 8 >= 8 - SPARE[np.dtype(dtype).itemsize]
        if coder is OutlierCoder and not spare:  # the other form of as many words
            assert 1 << bit % 8 == 8 * np.dtype(dtype).itemsize
            np.testing.assert_array_equal(back["tiles"].words, before["tiles"].words)
            continue
        assert spare
        np.testing.assert_array_equal(back["in"], before["in"])
        assert back["tiles"].words.size == before["tiles"].words.size
        assert int(tiles.unpack(back["tiles"], info, count, chunk)[0].max()) < 3


@pytest.mark.parametrize("coder", CODERS)
def test_bits_that_hold_no_mode_must_be_zero(coder: type[Coder]) -> None:
    """Of int16, three bits are spare and two hold the mode; segments behind the first hold none."""
    stage, here = coder(), scope(coder(), "int16", FOUR, 128, 128)
    given = tiles.pack(np.ones(1, np.uint8), np.empty(0, np.uint32), FOUR, 128, 128)
    value = stage.forward({"in": np.zeros(128, np.int16), "tiles": given}, here)["out"]
    assert value.words.tolist() == [1 << 5]
    wide = "need" if coder is OutlierCoder else "31 bits"  # which has a meaning for every number of 5 bits
    mutants = ((1 << 7, "claims mode 4"), (1 << 13, "spare bits"), (1 << 31, "spare bits"), (31, wide), (2 << 5, "need"))
    for word, message in mutants:
        with pytest.raises(ArchiveError, match=message):
            stage.inverse({"out": Chunked(value.sizes, np.array([word], np.uint32))}, here)


@pytest.mark.parametrize("dtype", ["int16", "uint32", "int64"])
@pytest.mark.parametrize("coder", CODERS)
def test_random_damage_is_read_or_refused(coder: type[Coder], dtype: str) -> None:
    rng = np.random.default_rng(11)
    stage, count, chunk = coder(), 200, 128
    here = scope(stage, dtype, FOUR, count, chunk)
    value = check(stage, dtype, FOUR, count, chunk, 3)
    read = 0
    for _ in range(500):
        words = value.words.copy()
        for at in rng.integers(0, words.size, 2).tolist():
            words[at] = rng.integers(0, 2**32) if rng.random() < 0.5 else words[at] ^ np.uint32(1 << int(rng.integers(0, 32)))
        try:
            back = stage.inverse({"out": Chunked(value.sizes, words)}, here)
        except ArchiveError:
            continue
        read += 1
        assert back["in"].shape == (count,)
        assert back["tiles"].sizes.size == 2
    assert 20 < read < 500

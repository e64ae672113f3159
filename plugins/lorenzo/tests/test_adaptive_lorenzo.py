"""The adaptive Lorenzo predictor against a slow reference in Python integers, with coders of the tests' own behind it."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import numpy as np
import pytest

from briquette import tiles
from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, DeclarationError, PipelineError
from briquette.ports import Chunked, PortType
from briquette.stage import Scope, Tail
from briquette_lorenzo.adaptive import AdaptiveLorenzo

CODE_TYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64"]
Cost = Callable[[list[int], int], int]


def width_cost(values: list[int], bits: int) -> int:
    """A word for each bit of the largest magnitude, and of its sign."""
    return max(2 * abs(v) for v in values).bit_length()


def odd_cost(values: list[int], bits: int) -> int:
    """Something no coder is like: what it says of a segment depends on where in it the numbers stand."""
    return sum((i + 1) * (v % 2**bits % 5) for i, v in enumerate(values)) % 23


def tail(dtype: str, segment: int, cost: Cost, room: Callable[[int], int] | None = None) -> Tail:
    bits = 8 * np.dtype(dtype).itemsize

    def told(codes: np.ndarray) -> np.ndarray:
        assert codes.dtype == dtype
        values = codes.tolist() + [0] * (-codes.size % segment)
        return np.array([cost(values[a : a + segment], bits) for a in range(0, len(values), segment)], np.int64)

    return Tail(segment, told, room)


def scope(stage: AdaptiveLorenzo, dtype: str, count: int, chunk: int, after: Tail | None = None) -> Scope:
    types = {"in": PortType(dtype)}
    return Scope({}, {**types, **stage.output_types(types)}, count, chunk, tail=after)


def forward(stage: AdaptiveLorenzo, codes: np.ndarray, after: Tail, chunk: int = 8192) -> tuple[np.ndarray, Chunked]:
    made = stage.forward({"in": codes}, scope(stage, codes.dtype.name, codes.size, chunk, after))
    return made["out"], made["tiles"]


def inverse(stage: AdaptiveLorenzo, deltas: np.ndarray, side: Chunked, chunk: int = 8192) -> np.ndarray:
    outputs = {"out": deltas, "tiles": side}
    return stage.inverse(outputs, scope(stage, deltas.dtype.name, deltas.size, chunk))["in"]


def wrapped(values: list[int], dtype: np.dtype) -> list[int]:
    bits = 8 * dtype.itemsize
    half = 2 ** (bits - 1) if dtype.kind == "i" else 0
    return [(v + half) % 2**bits - half for v in values]


def reference_tile(q: list[int], dtype: np.dtype, segment: int, cost: Cost, limit: int) -> tuple[int, list[int], int]:
    """Return mode, deltas and mean of one tile, straight from the format page."""
    bits = 8 * dtype.itemsize
    total = (sum(q) + 2**63) % 2**64 - 2**63
    mean = wrapped([total // len(q)], dtype)[0]
    tried = []
    for mode in range(limit):
        values = [v - (mean if mode & 2 else 0) for v in q]
        for _ in range(1 + (mode & 1)):
            values = [v - before for v, before in zip(values, [0, *values], strict=False)]
        deltas = wrapped(values, dtype)
        whole = deltas + [0] * (-len(q) % segment)
        words = sum(cost(whole[a : a + segment], bits) for a in range(0, len(q), segment))
        tried.append((words + (max(1, bits // 32) if mode & 2 else 0), mode, deltas))
    _, mode, deltas = min(tried)
    return mode, deltas, mean


def check(codes: np.ndarray, tile: int, segment: int, cost: Cost, chunk: int = 8192, short_limit: int = 4) -> list[int]:
    """Compare with the reference and decode; return the modes."""
    stage = AdaptiveLorenzo(tile=tile)
    room = (lambda n: 4 if n == tile else short_limit) if short_limit < 4 else None
    deltas, side = forward(stage, codes, tail(codes.dtype.name, segment, cost, room), chunk)
    assert deltas.dtype == codes.dtype
    modes, means, expected = [], [], []
    for a in range(0, codes.size, tile):
        q = codes[a : a + tile].tolist()
        mode, values, mean = reference_tile(q, codes.dtype, segment, cost, 4 if len(q) == tile else short_limit)
        modes.append(mode)
        expected += values
        if mode & 2:
            means += [mean % 2**32, mean % 2**64 >> 32][: max(1, codes.itemsize // 4)]
    assert deltas.tolist() == expected
    info = stage.output_types({"in": PortType(codes.dtype.name)})["tiles"].tiles
    found, words = tiles.unpack(side, info, codes.size, chunk)
    assert found.tolist() == modes
    assert words.tolist() == means
    np.testing.assert_array_equal(inverse(stage, deltas, side, chunk), codes)
    return modes


def field(dtype: str, n: int, seed: int) -> np.ndarray:
    """Runs of constants, ramps, parabolas, noise around an offset and extremes, each of some tens of elements."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    out: list[int] = []
    while len(out) < n:
        m, base = int(rng.integers(1, 90)), int(rng.integers(0, 1 << 14))
        kind = int(rng.integers(0, 5))
        i = np.arange(m)
        if kind == 4:
            out += rng.choice(np.array([info.min, info.max, 0, info.max // 2], dtype), m).tolist()
        else:
            step = (0 * i, 3 * i, i * i // 4, rng.integers(-2, 3, m))[kind]
            out += [base + int(s) for s in step]
    return np.array([v % 2**info.bits for v in out[:n]], f"u{np.dtype(dtype).itemsize}").view(dtype)


@pytest.mark.parametrize("dtype", CODE_TYPES)
def test_matches_the_reference_for_every_residue(dtype: str) -> None:
    modes: list[int] = []
    for n in [*range(1, 140), 255, 256, 257, 300]:
        modes += check(field(dtype, n, n), 64, 32, width_cost)
        modes += check(field(dtype, n, n + 1000), 32, 8, odd_cost)
    assert set(modes) == {0, 1, 2, 3}


@pytest.mark.parametrize(("tile", "segment"), [(32, 1), (32, 2), (64, 64), (96, 32), (160, 5), (256, 32), (1024, 256)])
def test_matches_the_reference_for_every_geometry(tile: int, segment: int) -> None:
    for dtype in ("int16", "int32", "uint64"):
        for n in (1, 2, 3, segment, segment + 1, tile - 1, tile, tile + 1, tile + segment + 1, 3 * tile + 7):
            for cost in (width_cost, odd_cost):
                check(field(dtype, n, n), tile, segment, cost, chunk=2 * tile)


@pytest.mark.parametrize("dtype", CODE_TYPES)
def test_extremes_wrap(dtype: str) -> None:
    info = np.iinfo(dtype)
    for values in (
        [info.min],
        [info.max] * 3,
        [info.min, info.max] * 50,
        [info.max] * 97,
        [info.min, info.min, info.max, 0] * 30,
    ):
        check(np.array(values, dtype), 32, 8, odd_cost)
        check(np.array(values, dtype), 96, 32, width_cost, chunk=192)


def test_a_tile_whose_modes_do_not_all_fit_chooses_among_those_that_do() -> None:
    ramp = (np.arange(64 + 20) * 5 + 1000).astype(np.int64)
    assert check(ramp, 64, 32, width_cost)[-1] & 2
    assert check(ramp, 64, 32, width_cost, short_limit=2)[-1] < 2
    for n in range(65, 128):
        check(field("int64", n, n), 64, 32, odd_cost, short_limit=2)


def test_equal_costs_take_the_lowest_mode() -> None:
    assert check(np.zeros(100, np.int32), 32, 32, width_cost) == [0] * 4
    assert check(field("int32", 100, 3), 32, 32, lambda values, bits: 7) == [0] * 4
    # all other modes are cheaper by the mean's word, and no more
    assert check(np.full(32, 1, np.int32), 32, 32, lambda values, bits: int(any(values))) == [0]


def test_the_mean_is_the_floor() -> None:
    def centred_only(values: list[int], bits: int) -> int:
        return 9 * (values[0] % 2**bits > 4)

    codes = np.array([-7] * 31 + [-6], np.int32)
    stage = AdaptiveLorenzo(tile=32)
    side = forward(stage, codes, tail("int32", 32, centred_only))[1]
    assert side.words.view(np.int32).tolist() == [2, -7]
    side = forward(stage, codes[1:].astype(np.int16), tail("int16", 32, centred_only))[1]
    assert side.words.view(np.int32).tolist() == [2, -7]  # one word, extended by its sign
    side = forward(stage, codes.astype(np.int64), tail("int64", 32, centred_only))[1]
    assert side.words.tolist() == [2, 2**32 - 7, 2**32 - 1]
    side = forward(stage, np.full(32, 60_000, np.uint16), tail("uint16", 32, centred_only))[1]
    assert side.words.tolist() == [2, 60_000]


def test_pieces_join_to_the_whole() -> None:
    codes, stage, after = field("int32", 3 * 1024 + 17, 0), AdaptiveLorenzo(tile=128), tail("int32", 32, width_cost)
    whole = forward(stage, codes, after, 1024)
    pieces = [forward(stage, codes[a : a + 1024], after, 1024) for a in range(0, codes.size, 1024)]
    np.testing.assert_array_equal(np.concatenate([p[0] for p in pieces]), whole[0])
    joined = Chunked.concatenate([p[1] for p in pieces])
    assert (joined.sizes.tolist(), joined.words.tolist()) == (whole[1].sizes.tolist(), whole[1].words.tolist())


def test_empty_and_read_only_input() -> None:
    stage, after = AdaptiveLorenzo(), tail("int32", 32, width_cost)
    deltas, side = forward(stage, np.empty(0, np.int32), after)
    assert (deltas.size, side.sizes.size, side.words.size) == (0, 0, 0)
    assert inverse(stage, deltas, side).size == 0
    codes = field("int32", 300, 1)
    codes.flags.writeable = False
    deltas, side = forward(stage, codes, after)
    for array in (deltas, side.sizes, side.words):
        array.flags.writeable = False
    assert inverse(stage, deltas, side).flags.writeable


def test_damaged_tiles_are_refused() -> None:
    stage = AdaptiveLorenzo(tile=32)
    deltas, side = forward(stage, field("int32", 100, 5), tail("int32", 32, width_cost))
    for bit in range(8, 32):  # 4 tiles take 8 bits
        words = side.words.copy()
        words[0] ^= np.uint32(1 << bit)
        with pytest.raises(ArchiveError, match="padding"):
            inverse(stage, deltas, Chunked(side.sizes, words))
    with pytest.raises(ArchiveError, match="words"):
        inverse(stage, deltas, Chunked(side.sizes + np.uint32(1), np.append(side.words, np.uint32(0))))


def test_without_a_tail_nothing_can_be_chosen() -> None:
    stage = AdaptiveLorenzo()
    with pytest.raises(DeclarationError, match="knows no tail"):
        stage.forward({"in": np.zeros(9, np.int32)}, scope(stage, "int32", 9, 8192))


@pytest.mark.parametrize("tile", [0, -32, 31, 33, 65_568, 256.0, "256", True, None])
def test_bad_tiles_are_refused_by_value(tile: object) -> None:
    with pytest.raises(PipelineError, match=f"tile = {tile!r}"):
        AdaptiveLorenzo(tile=tile)


@pytest.mark.parametrize("given", [PortType("float32"), PortType("int8"), PortType("int32", "chunked")])
def test_what_is_no_code_is_refused(given: PortType) -> None:
    with pytest.raises(PipelineError, match="adaptive-lorenzo"):
        AdaptiveLorenzo().output_types({"in": given})


def test_declaration_and_value_semantics() -> None:
    stage = AdaptiveLorenzo(tile=512)
    assert (stage.fusion_spec().access, stage.fusion_spec().span) == (FusionAccess.TILE_SELECTOR, 512)
    assert stage.fused_op().qualified == "::briquette_lorenzo::AdaptiveLorenzo"
    assert stage.fused_aux_outputs() == ("tiles",)
    for dtype, words in (("int16", 1), ("uint32", 1), ("int64", 2)):
        made = stage.output_types({"in": PortType(dtype)})
        assert made["out"] == PortType(dtype)
        assert made["tiles"].tiles.side_words == (0, 0, words, words)
        assert stage.max_chunk_words("tiles", {"in": PortType(dtype)}, 8192) == 1 + 16 * words
    assert pickle.loads(pickle.dumps(stage)) == stage == AdaptiveLorenzo.from_parameters(stage.parameters())


@pytest.mark.serial
def test_the_reference_is_fast_enough_to_use() -> None:
    def cost(codes: np.ndarray) -> np.ndarray:
        return np.bitwise_or.reduce(codes.reshape(-1, 32), axis=1).astype(np.int64)

    codes = np.cumsum(np.random.default_rng(0).integers(-50, 50, 1 << 19)).astype(np.int32)
    best = np.inf
    for _ in range(3):
        begin = time.perf_counter()
        deltas, side = forward(AdaptiveLorenzo(), codes, Tail(32, cost))
        inverse(AdaptiveLorenzo(), deltas, side)
        best = min(best, time.perf_counter() - begin)
    assert codes.nbytes / best > 20e6, f"{codes.nbytes / best / 1e6:.1f} MB/s"

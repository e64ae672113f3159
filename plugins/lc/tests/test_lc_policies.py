"""The policies write and read the same bytes as the NumPy forms, by one lane and by many, and refuse the same payloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lc_data import ELIMINATIONS, KINDS, PACKINGS, PLANES, coders, damaged, made, padded
from lc_policies import Policies, build

from briquette.errors import ArchiveError
from briquette_lc._chunks import Bytes, Reader
from briquette_lc.tuples import TupleOrder

Built = Callable[..., Policies]
SMALL = [*range(70), 127, 128, 129, 191, 200, 255, 256, 257, 299, 300]
EDGES = [1000, 2047, 4032, 4088, 4093, 4095, 4096]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lc")


@pytest.fixture(scope="module")
def alone(folder: Path) -> Policies:
    """Every coder over 4096 bytes, by one lane, for any processor."""
    return build(folder / "alone", coders(4096))


@pytest.fixture(scope="module")
def native(folder: Path) -> Policies:
    """Coders by one lane, for this processor, as the host target compiles them."""
    words = ((1, 2), (1, 0), (2, 2), (2, "adaptive"))
    stages = [c(4096, w, levels) for c in ELIMINATIONS[:2] for w, levels in words]
    stages += [c(4096, w, levels, planes) for c in ELIMINATIONS[:2] for w, levels, planes in PLANES]
    return build(folder / "native", stages, options=["-march=native"])


def spread() -> list[Any]:
    """Coders for several lanes: each kind with each word size, the levels by turns; the largest chunk once a kind."""
    small: list[Any] = [c(4096, w, levels) for c in ELIMINATIONS for w, levels in ((1, 2), (2, "adaptive"), (4, 1), (8, 3))]
    large: list[Any] = [c(chunk_bytes=16384, word=1) for c in (*ELIMINATIONS, *PACKINGS)]
    small += [c(4096, w, levels, planes) for c in ELIMINATIONS[:2] for w, levels, planes in PLANES]
    return [*small, *(c(chunk_bytes=4096, word=w) for c in PACKINGS for w in (1, 2, 4, 8)), *large]


@pytest.fixture(scope="module")
def many(folder: Path) -> Policies:
    """Coders run by 64 lanes."""
    return build(folder / "many", spread(), lanes=64)


def decoded(stage: Any, coded: Bytes, size: int) -> Bytes | None:
    reader = Reader(coded)
    try:
        data: Bytes = stage.decode(reader, size)
        reader.finish()
    except ArchiveError:
        return None
    return data


def check(policies: Policies, number: int, data: Bytes, descending: bool = False) -> Bytes | None:
    """Compare both directions with the NumPy form; return the coded bytes where there are some."""
    stage = policies.stages[number]
    expected: Bytes = stage.encode(data)
    got = policies.encode(number, data, descending)
    if expected.size >= data.size:
        assert got is None, (stage, data.size)
        return None
    assert got is not None, (stage, data.size)
    np.testing.assert_array_equal(got, expected, str((stage, data.size)))
    if padded(expected).size >= padded(data).size:  # stored as it is; no decoder sees it
        return None
    back = policies.decode(number, padded(got), data.size, descending)
    assert back is not None, (stage, data.size)
    np.testing.assert_array_equal(back, data, str((stage, data.size)))
    oracle = decoded(stage, padded(expected), data.size)
    assert oracle is not None
    np.testing.assert_array_equal(oracle, data)
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_one_lane_for_every_size(alone: Policies, kind: str) -> None:
    coded = 0
    for number, stage in enumerate(alone.stages):
        for size in [*SMALL[number % 3 :: 3], EDGES[number % 7], 4096]:
            coded += check(alone, number, made(kind, size, number, stage.word)) is not None
    assert coded == 0 if kind == "random" else coded > 100


def test_one_lane_of_this_processor(native: Policies) -> None:
    for number, stage in enumerate(native.stages):
        for kind in KINDS:
            for size in [*SMALL, *EDGES]:
                check(native, number, made(kind, size, number, stage.word))
        coded = stage.encode(made("mixed", 4090, number, stage.word))
        for bad in damaged(coded, np.random.default_rng(number), 60):
            expected, got = decoded(stage, bad, 4090), native.decode(number, bad, 4090)
            assert (expected is None) == (got is None), (stage, bad.tobytes())
            if expected is not None and got is not None:
                np.testing.assert_array_equal(got, expected)


def test_every_coder_shrinks_something(alone: Policies) -> None:
    for number, stage in enumerate(alone.stages):
        assert any(check(alone, number, made(kind, 4096, 1, stage.word)) is not None for kind in KINDS), stage


@pytest.mark.parametrize("descending", [False, True])
def test_many_lanes(many: Policies, descending: bool) -> None:
    for number, stage in enumerate(many.stages):
        sizes = [0, 3, 33, 257, 1001, stage.chunk_bytes - 5, stage.chunk_bytes]
        for size in sizes if stage.chunk_bytes == 4096 else sizes[-2:]:
            kinds = ("zero", "leading", "mixed") if size == stage.chunk_bytes else ("runs", "small", "sparse")[size % 3 :][:1]
            for kind in kinds:
                check(many, number, made(kind, size, number, stage.word), descending)


@pytest.mark.parametrize("kind", ["sparse", "runs", "walk", "mixed", "zero"])
def test_damage_is_refused_alike(alone: Policies, kind: str) -> None:
    refused = accepted = 0
    for number, stage in enumerate(alone.stages):
        rng = np.random.default_rng([number, KINDS.index(kind)])
        for size in (301, 4090):
            coded = stage.encode(made(kind, size, number, stage.word))
            if padded(coded).size >= padded(np.empty(size, np.uint8)).size:
                continue
            for bad in damaged(coded, rng, 12):
                if bad.size >= size // 4 * 4:
                    continue
                expected, got = decoded(stage, bad, size), alone.decode(number, bad, size)
                assert (expected is None) == (got is None), (stage, size, bad.tobytes())
                if expected is None or got is None:
                    refused += 1
                else:
                    accepted += 1
                    np.testing.assert_array_equal(got, expected)
    assert min(refused, accepted) > 50


@pytest.mark.parametrize("descending", [False, True])
def test_damage_is_refused_alike_by_many_lanes(many: Policies, descending: bool) -> None:
    for number, stage in enumerate(many.stages):
        rng = np.random.default_rng([number, descending])
        coded = stage.encode(made("mixed", 1002, number, stage.word))
        if padded(coded).size >= 1000:
            coded = stage.encode(made("zero", 1002, number, stage.word))
        for bad in damaged(coded, rng, 8):
            if bad.size >= 1000:
                continue
            expected, got = decoded(stage, bad, 1002), many.decode(number, bad, 1002, descending)
            assert (expected is None) == (got is None), (stage, bad.tobytes())
            if expected is not None and got is not None:
                np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("lanes", [1, 64])
def test_tuples(folder: Path, lanes: int) -> None:
    stages = [TupleOrder(chunk_bytes=4096, word=w, size=s) for w in (1, 2, 4, 8) for s in (2, 3, 4, 7, 16)]
    policies = build(folder / f"tuples{lanes}", stages, lanes, coders=False)
    for number, stage in enumerate(stages):
        for size in (0, 1, 31, 64, 97, 300, 4095, 4096):
            data = made("random", size, number)
            words = data[: size // stage.word * stage.word].reshape(-1, stage.word)
            tuples = len(words) // stage.size
            first = words[: tuples * stage.size].reshape(tuples, stage.size, stage.word)
            expected = np.concatenate((first.transpose(1, 0, 2).reshape(-1), data[first.size :]))
            np.testing.assert_array_equal(policies.turn(number, data), expected)
            np.testing.assert_array_equal(policies.turn(number, expected, back=True), data)

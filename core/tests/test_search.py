"""The search's parts: what a sample is made of, and how a bracket closes in."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from briquette.search import _DEPTH, _NARROW, Goal, _Bracket, stratified


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1600])
def test_a_small_array_is_its_own_sample(size: int) -> None:
    x = np.arange(size)
    assert stratified(x, 100, 1600) is x


@pytest.mark.parametrize("size", [1700, 5000, 100_050, 123_456])
def test_a_sample_is_whole_chunks_one_a_stratum_in_order(size: int) -> None:
    x, chunk, wanted = np.arange(size), 100, 16
    sample = stratified(x, chunk, chunk * wanted)
    assert np.array_equal(sample, stratified(x, chunk, chunk * wanted))
    firsts = [at for at in sample.tolist() if at % chunk == 0]
    assert len(firsts) == wanted
    assert firsts == sorted(set(firsts))
    assert np.array_equal(sample, np.concatenate([x[at : at + chunk] for at in firsts]))
    chunks = -(-size // chunk)
    strata = [next(i for i in range(wanted) if at // chunk < chunks * (i + 1) // wanted) for at in firsts]
    assert strata == list(range(wanted))


def test_chunks_larger_than_the_sample_are_taken_one() -> None:
    assert stratified(np.arange(1000), 300, 100).size in (300, 100)


def steps(at: float) -> float:
    return math.floor(4 * at) / 4


@pytest.mark.parametrize("height", [-30.2, -7.1, -0.3])
@pytest.mark.parametrize("start", [-_DEPTH, -20.0, -1.0, 0.0])
@pytest.mark.parametrize("curve", [lambda at: at, lambda at: -((-at) ** 1.3) / 3, steps], ids=["line", "bend", "steps"])
def test_a_bracket_closes_on_the_crossing(curve: Callable[[float], float], height: float, start: float) -> None:
    bracket, at, turns = _Bracket(height), start, 0
    while not bracket.closed:
        assert -_DEPTH <= at <= 0.0
        assert bracket.low < at < bracket.high
        bracket.take(at, curve(at))
        at, turns = bracket.next() if not bracket.closed else at, turns + 1
        assert turns < 100
    (low, below), (high, above) = bracket.ends
    assert below == curve(low) < height <= curve(high) == above
    assert high - low < _NARROW


@pytest.mark.parametrize(("height", "end"), [(1.0, 0.0), (-100.0, -_DEPTH)])
def test_a_bracket_ends_at_the_end(height: float, end: float) -> None:
    bracket, at = _Bracket(height), -5.0
    for _ in range(50):
        bracket.take(at, at)
        if bracket.closed:
            break
        at = bracket.next()
    assert bracket.ends == [(end, end)]


def test_infinite_heights_are_halved_away() -> None:
    bracket, at = _Bracket(-90.0), -30.0
    while not bracket.closed:
        bracket.take(at, -math.inf if at < -12.0 else 20 * at / 3)
        at = bracket.next() if not bracket.closed else at
    assert bracket.high == pytest.approx(-12.0, abs=1e-5)


def test_tolerances() -> None:
    ratio, psnr = Goal("ratio", 10.0), Goal("psnr", 60.0)
    assert [ratio.met(a) for a in (9.69, 9.71, 10.29, 10.31)] == [False, True, True, False]
    assert [psnr.met(a) for a in (59.49, 59.51, 60.49, 60.51, math.inf)] == [False, True, True, False, False]
    assert ratio.of(20.0) > ratio.of(10.0) == ratio.height
    assert psnr.of(50.0) > psnr.of(60.0) == psnr.height

"""Stages and bytes that the tests of this pack try."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from briquette_lc._chunks import Bytes
from briquette_lc.adaptive import AdaptiveRepetitionElimination, AdaptiveZeroElimination
from briquette_lc.clog import Clog, HybridClog
from briquette_lc.elimination import RepetitionElimination, ZeroElimination

LEVELS: tuple[int | str, ...] = (0, 1, 2, 3, 4, "adaptive")
ELIMINATIONS = (ZeroElimination, RepetitionElimination, AdaptiveZeroElimination, AdaptiveRepetitionElimination)
PACKINGS = (Clog, HybridClog)
#: word, levels, planes
PLANES: tuple[tuple[int, int | str, int], ...] = (
    *((1, 4, planes) for planes in (8, 16, 32, 64)),
    *((word, 2, 64) for word in (2, 4, 8)),
    *((1, levels, 32) for levels in (0, 1, "adaptive")),
)
KINDS = ("zero", "random", "sparse", "runs", "walk", "small", "leading", "mixed")


def coders(chunk: int) -> list[Any]:
    """Return every coder with every word size and every choice of levels, and planes of every number."""
    found: list[Any] = [c(chunk, w, levels) for c in ELIMINATIONS for w in (1, 2, 4, 8) for levels in LEVELS]
    found += [c(chunk, w, levels, planes) for c in ELIMINATIONS[:2] for w, levels, planes in PLANES]
    return found + [c(chunk_bytes=chunk, word=w) for c in PACKINGS for w in (1, 2, 4, 8)]


def made(kind: str, size: int, seed: int, word: int = 4) -> Bytes:
    """Return `size` bytes of a kind of data; `word` bytes are a number of it."""
    rng = np.random.default_rng([seed, size, word, KINDS.index(kind)])
    count = size // word + 1
    bits = 8 * word
    values: NDArray[Any]
    if kind == "zero":
        values = np.zeros(count, np.int64)
    elif kind == "sparse":
        values = np.where(rng.random(count) < 0.03, rng.integers(1, 2 ** (bits - 1), count), 0)
    elif kind == "runs":
        values = np.repeat(rng.integers(0, 2 ** (bits - 1), count // 20 + 1), 20)[:count]
    elif kind == "walk":
        values = np.cumsum(rng.integers(-2, 3, count))
    elif kind == "small":
        values = rng.integers(-4, 5, count)
    elif kind == "leading":  # every width of number
        values = rng.integers(0, 2 ** (bits - 1), count) >> rng.integers(0, bits, count)
    elif kind == "mixed":
        values = np.concatenate([made(k, count * word // 4 + word, seed, word)[: count * word // 4] for k in KINDS[2:6]])
        return np.resize(values.view(np.uint8), size).copy()
    else:
        values = rng.integers(-(2**63), 2**63 - 1, count)
    return values.astype(f"<i{word}").view(np.uint8)[:size].copy()


def padded(coded: Bytes) -> Bytes:
    """Return coded bytes with zero bytes up to whole 32-bit words."""
    return np.pad(coded, (0, -coded.size % 4))


def damaged(coded: Bytes, rng: np.random.Generator, tries: int) -> Iterator[Bytes]:
    """Yield padded payloads with bits flipped, bytes changed, words cut off or appended."""
    good = padded(coded)
    for _ in range(tries):
        bad = good.copy()
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(0, bad.size)) if rng.random() < 0.4 else int(rng.integers(0, min(bad.size, 40)))
            at = bad.size - 1 - at % 8 if rng.random() < 0.15 else at  # the end, with its padding
            bad[at] ^= rng.integers(0, 256) if rng.random() < 0.5 else 1 << rng.integers(0, 8)
        change = int(rng.integers(-2, 3)) if rng.random() < 0.3 else 0
        yield np.resize(bad, max(bad.size + 4 * change, 0)) if change <= 0 else np.pad(bad, (0, 4 * change))

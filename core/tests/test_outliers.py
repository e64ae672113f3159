"""The outliers side stream against a slow reference written from docs/format.md, and against damage."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette import outliers
from briquette.errors import ArchiveError, UsageError
from briquette.ports import Chunked


def _runs(items: list, joined) -> list[list]:
    out: list[list] = []
    for item in items:
        if out and joined(out[-1][-1], item):
            out[-1].append(item)
        else:
            out.append([item])
    return out


def _pad(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 4)


def reference_chunk(kept: list[bool], raw: list[bytes]) -> bytes:
    """Return the bytes of one chunk, straight from the format page."""
    where = [i for i, k in enumerate(kept) if k]
    if not where:
        return b""
    values = [raw[i] for i in where]
    m = len(kept)
    bitmap = 0
    for i in where:
        bitmap |= 1 << i
    position_runs = _runs(where, lambda a, b: b == a + 1)
    value_runs = _runs(values, lambda a, b: a == b)
    positions = [
        _pad(b"".join(struct.pack("<H", i) for i in where)),
        bitmap.to_bytes(4 * -(-m // 32), "little"),
        struct.pack("<I", len(position_runs)) + b"".join(struct.pack("<HH", r[0], len(r) - 1) for r in position_runs),
    ]
    lengths = _pad(b"".join(struct.pack("<H", len(r) - 1) for r in value_runs))
    forms = [_pad(b"".join(values)), struct.pack("<I", len(value_runs)) + lengths + _pad(b"".join(r[0] for r in value_runs))]
    p = min(range(3), key=lambda k: len(positions[k]))
    v = min(range(2), key=lambda k: len(forms[k]))
    return struct.pack("<I", len(where) | p << 28 | v << 30) + positions[p] + forms[v]


def reference(kept: np.ndarray, values: np.ndarray, chunk: int) -> list[bytes]:
    raw = [v.tobytes() for v in values]
    flags = kept.tolist()
    return [reference_chunk(flags[a : a + chunk], raw[a : a + chunk]) for a in range(0, len(flags), chunk)]


def check(kept: np.ndarray, values: np.ndarray, chunk: int) -> Chunked:
    coded = outliers.encode(kept, values, chunk)
    expected = reference(kept, values, chunk)
    assert coded.sizes.dtype == coded.words.dtype == np.uint32
    assert coded.sizes.tolist() == [len(e) // 4 for e in expected]
    assert coded.words.tobytes() == b"".join(expected)
    assert all(s <= outliers.max_chunk_words(chunk, values.itemsize) for s in coded.sizes.tolist())
    where, what = outliers.decode(coded, kept.size, chunk, values.dtype)
    assert where.dtype == np.int64
    assert where.tolist() == np.flatnonzero(kept).tolist()
    assert what.dtype == values.dtype
    assert what.tobytes() == values[kept].tobytes()
    restored = np.where(kept, values.dtype.type(0), values)
    outliers.restore(coded, chunk, restored)
    assert restored.tobytes() == values.tobytes()
    return coded


def _patterns(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    blob = np.zeros(n, bool)
    blob[n // 4 : n // 2] = True
    blob[n - n // 8 :] = True
    ends = np.zeros(n, bool)
    ends[[0, -1] if n else []] = True
    return {
        "none": np.zeros(n, bool),
        "all": np.ones(n, bool),
        "rare": rng.random(n) < 0.02,
        "half": rng.random(n) < 0.5,
        "blob": blob,
        "ends": ends,
        "alternate": np.arange(n) % 2 == 0,
    }


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("chunk", [1, 7, 32, 100, 256])
@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 99, 100, 101, 255, 256, 257, 700])
def test_matches_the_reference(n: int, chunk: int, dtype: str) -> None:
    rng = np.random.default_rng(n * 1000 + chunk)
    distinct = rng.standard_normal(n).astype(dtype)
    repeated = np.where(rng.random(n) < 0.9, np.array(np.nan, dtype), distinct)
    for kept in _patterns(n, rng).values():
        check(kept, distinct, chunk)
        check(kept, repeated, chunk)


def test_every_form_occurs() -> None:
    n = 256
    values = np.arange(n, dtype=np.float32)
    patterns = [kept for kept in _patterns(n, np.random.default_rng(3)).values() if kept.any()]
    assert {int(check(kept, values, n).words[0]) >> 28 & 3 for kept in patterns} == {0, 1, 2}
    assert int(check(np.ones(n, bool), np.full(n, np.nan), n).words[0]) >> 30 == 1


def test_the_largest_chunk_and_its_longest_run() -> None:
    n = outliers.MAX_CHUNK
    coded = check(np.ones(n, bool), np.full(n, np.nan, np.float32), n)
    assert coded.words.size == 1 + 2 + 3


def test_payload_bits_are_kept() -> None:
    bits = np.array([0x7FC12345, 0x7F800001, 0xFFC00000, 0x80000000, 0x7F800000], np.uint32)
    coded = outliers.encode(np.ones(5, bool), bits.view(np.float32), 8)
    assert outliers.decode(coded, 5, 8, "float32")[1].view(np.uint32).tolist() == bits.tolist()


def test_what_the_format_cannot_hold_is_refused() -> None:
    one = np.ones(1, bool)
    with pytest.raises(UsageError, match="65537"):
        outliers.encode(one, np.ones(1, np.float32), 65537)
    with pytest.raises(UsageError, match="int8"):
        outliers.encode(one, np.ones(1, np.int8), 8)
    with pytest.raises(UsageError, match="2 values"):
        outliers.encode(one, np.ones(2, np.float32), 8)


def _words(*numbers: int) -> Chunked:
    return Chunked(np.array([len(numbers)], np.uint32), np.array(numbers, np.uint32))


LIST, BITMAP, RUNS = 0, 1 << 28, 2 << 28
VALUE_RUNS = 1 << 30


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (_words(0), "claims 0 outliers"),
        (_words(41 | RUNS, 1, 40 << 16, 9), "claims 41"),
        (_words(2 | LIST, 5 | 5 << 16, 1, 2), "not ascending"),
        (_words(2 | LIST, 5 | 4 << 16, 1, 2), "not ascending"),
        (_words(1 | LIST, 40, 1), "not ascending"),
        (_words(1 | LIST, 1 | 1 << 16, 1), "padding"),
        (_words(1 | 3 << 28, 1, 1), "position form 3"),
        (_words(1 | 2 << 30, 1, 1), "value form 2"),
        (_words(2 | BITMAP, 1, 0, 1, 2), "not ascending"),
        (_words(1 | BITMAP, 0, 1 << 8, 1), "not ascending"),
        (_words(2 | RUNS, 3, 1, 1, 1, 1, 1), "3 runs"),
        (_words(2 | RUNS, 0, 1, 1), "0 runs"),
        (_words(2 | RUNS, 1, 0xFFFF << 16, 1, 1), "cover 65536"),
        (_words(2 | RUNS, 2, 7, 7, 1, 1), "not ascending"),
        (_words(2 | RUNS, 1, 39 | 1 << 16, 1, 1), "not ascending"),
        (_words(2 | LIST | VALUE_RUNS, 1 | 2 << 16, 1, 5, 9), "hold 6 values"),
        (_words(2 | LIST | VALUE_RUNS, 1 | 2 << 16, 0xFFFFFFFF, 5, 9), "4294967295 runs"),
        (_words(1 | LIST | VALUE_RUNS, 1, 1, 1 << 16, 9), "padding"),
        (_words(1 | LIST, 1), "need"),
        (_words(1 | LIST, 1, 1, 1), "end after 3"),
        (Chunked(np.array([1, 1], np.uint32), np.zeros(2, np.uint32)), "2 chunks"),
        (Chunked(np.array([9], np.uint32), np.zeros(2, np.uint32)), "9 words"),
    ],
)
def test_impossible_words_are_refused(value: Chunked, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        outliers.decode(value, 40, 64, "float32")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_an_error_or_in_range(data: st.DataObject) -> None:
    n, chunk = 90, 40
    rng = np.random.default_rng(data.draw(st.integers(0, 20)))
    kept = list(_patterns(n, rng).values())[data.draw(st.integers(1, 6))]
    coded = outliers.encode(kept, np.where(rng.random(n) < 0.5, np.nan, rng.random(n)), chunk)
    words, sizes = coded.words.copy(), coded.sizes.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        target = words if words.size and data.draw(st.booleans()) else sizes
        target[data.draw(st.integers(0, target.size - 1))] ^= np.uint32(1 << data.draw(st.integers(0, 31)))
    try:
        where, what = outliers.decode(Chunked(sizes, words), n, chunk, "float64")
    except ArchiveError:
        return
    assert where.size == what.size <= n
    assert (np.diff(where, prepend=-1, append=n) > 0).all()

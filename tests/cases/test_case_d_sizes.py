"""Cases D and E: awkward element counts, long thin shapes, high ranks, and more than 2^31 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE, STAGED

import briquette as bq
from briquette.archive.header import MAX_RANK, Header
from briquette.errors import UsageError
from briquette_bitpack.plainrate import PlainRate
from briquette_lorenzo.lorenzo1d import Lorenzo1D

PRIMES = (2, 3, 31, 37, 127, 257, 1021, 8191, 8209, 65_537, 131_071, 1_299_709)


def wave(n: int) -> np.ndarray:
    """A smooth float32 stream of `n` elements with a NaN at both ends."""
    x = np.resize(np.sin(np.arange(min(n, 1 << 20)) * (2 * np.pi * 100 / (1 << 20))).astype(np.float32), n)
    if n:
        x[0] = x[-1] = np.nan
    return x


@pytest.mark.parametrize("n", PRIMES)
def test_d1_primes(n: int) -> None:
    casekit.check(wave(n), 1e-3, "abs", PRESETS, coded=None if n < 300 else True)


def test_d1_one_below_and_above_every_multiple_of_a_span() -> None:
    multiples = {m for span, top in ((32, 1024), (256, 8192), (8192, 32_768)) for m in range(span, top + 1, span)}
    near = {m + d for m in multiples for d in (-1, 0, 1)}
    base = wave(40_000)
    for n in sorted(near):
        x = base[40_000 - n :]
        casekit.check(x, 1e-3, "abs", ("fast", "planes"), wanted=(REFERENCE, FUSED), coded=None if n < 300 else True)


def test_d1_a_large_odd_count() -> None:
    casekit.check(wave(11_689_512), 1e-3, "rel", ("planes",))


def test_d1_a_very_large_odd_count() -> None:
    x = wave(89_999_991)
    trip = casekit.check(x, 1e-3, "abs", wanted=casekit.ways((FUSED,)) or (REFERENCE,))["fast"]
    assert trip.result.outliers == 2


@pytest.mark.parametrize("shape", [(4, 4, 65_537), (65_537, 1, 1), (1, 2, 3, 4, 5, 4, 3, 2), (2, 1) * 16], ids=str)
def test_d4_long_dimensions_and_high_ranks(shape: tuple[int, ...]) -> None:
    x = wave(int(np.prod(shape))).reshape(shape)
    casekit.check(x, 1e-3, "abs", PRESETS)


@pytest.mark.parametrize("rank", [33, MAX_RANK])
def test_d4_ranks_beyond_32(rank: int) -> None:
    if int(np.__version__.split(".")[0]) < 2:
        pytest.skip("NumPy before 2.0 has at most 32 dimensions")
    x = wave(4096).reshape((4096,) + (1,) * (rank - 1))
    casekit.check(x, 1e-3, "abs", PRESETS)


def test_d4_a_rank_the_format_cannot_hold_is_refused_when_compressing() -> None:
    # NumPy itself has no such array, so what is asked is the last step before bytes are written
    header = Header("0", "float32", "<", (1,) * (MAX_RANK + 1), 8192, raw=True)
    with pytest.raises(UsageError, match=rf"{MAX_RANK + 1}.*{MAX_RANK}"):
        header.encode(bytes(40))


def test_d4_dimensions_are_64_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (2**40 + 1, 0, 3)  # an empty array may have dimensions that no memory could hold
    blob = bq.compress(np.empty(shape, np.float32), 1e-3)
    assert bq.decompress(blob).shape == shape
    assert bq.info(blob)["shape"] == list(shape)


def available_bytes() -> int:
    """Memory that can be had without swapping; 0 where the system does not say."""
    info = Path("/proc/meminfo")
    rows = dict(line.split(":", 1) for line in info.read_text().splitlines()) if info.exists() else {}
    return int(rows.get("MemAvailable", "0 kB").split()[0]) * 1024


@pytest.mark.slow
def test_e1_around_2_to_the_31_bytes() -> None:
    """One test, so that no two of its parts run side by side: three buffers of 2.2 GB serve them all.

    Arrays of float32 end 4 bytes below 2**31 bytes, not 1. Every chunk codes alone, so that the shorter arrays must come
    back as the beginning of the longest, which is compared with its original.
    """
    if available_bytes() < 9 << 30:
        pytest.skip("needs 9 GB of free memory")
    target = (casekit.ways((FUSED,)) or [REFERENCE])[0].target
    counts = ((2**31 + 16) // 4, 2**31 // 4, 2**31 // 4 - 1)
    wide = 552_000_003
    data, back = np.empty(4 * wide, np.uint8), np.full(4 * wide, 0xA5, np.uint8)
    room = np.empty(4 * wide + 65_536, np.uint8)

    x, longest = data.view(np.float32), back.view(np.float32)
    fill(x, wave(1 << 20)[1:])
    for n in counts:
        made = bq.compress_run(x[:n], 1e-3, target=target, threads=2, out=room)
        assert not made.raw
        out = longest[:n] if n == counts[0] else x[:n]  # over its source: values of codes have the same codes again
        bq.decompress(made.archive, target=target, threads=2, out=out)
        if n == counts[0]:
            assert all((np.abs(a - b.astype(np.float64)) <= 1e-3)[np.isfinite(b)].all() for a, b in pieces(longest[:n], x[:n]))
            assert np.isnan(longest[: 1 << 20]).sum() == 1
        else:
            assert all(np.array_equal(a, b) for a, b in pieces(out.view(np.uint32), longest[:n].view(np.uint32)))

    codes, again = data.view(np.int32), back.view(np.int32)
    fill(codes, np.random.default_rng(31).integers(-(2**29), 2**29, 1 << 20, dtype=np.int32))
    pipe = bq.chain(Lorenzo1D(region=256), PlainRate(segment=32))  # lossless, so that equality decides
    exact = pipe.run(codes, target=target, threads=1, out=room)
    assert not exact.raw
    assert bq.info(exact.archive)["segments"][0]["payload_bytes"] > 2**31
    bq.decompress(exact.archive, target=target, threads=1, out=again)
    assert all(np.array_equal(a, b) for a, b in pieces(codes, again))


def fill(memory: np.ndarray, block: np.ndarray) -> None:
    for at in range(0, memory.size, block.size):
        memory[at : at + block.size] = block[: memory.size - at]


def pieces(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut two streams alike, small enough that what is made of them stays in cache."""
    for at in range(0, a.size, 1 << 18):
        yield a[at : at + (1 << 18)], b[at : at + (1 << 18)]


def test_d1_staged_steps_agree_on_a_large_count() -> None:
    casekit.check(wave(1_048_583), 1e-4, "rel", ("zigzag",), wanted=(REFERENCE, STAGED), threads=2)

"""Entropy coders on a GPU: the bytes of the NumPy reference, in host memory and in the GPU's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.errors import ArchiveError

pytestmark = pytest.mark.gpu

SIZES = (1, 8191, 8193, 100 * 8192 + 77)


def codes(n: int, dtype: str) -> NDArray[Any]:
    rng = np.random.default_rng(n)
    x = (rng.standard_cauchy(n) * 20).clip(-120, 120)
    x[rng.random(n) < 0.5] = 0
    x[n // 3 : n // 2] = 7
    return np.abs(x).astype(dtype) if dtype.startswith("u") else x.astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("coder", ["huffman", "run-length"])
def test_the_reference_bytes(coder: str, dtype: str) -> None:
    pipe = bq.chain(coder)
    for n in SIZES:
        x = codes(n, dtype)
        data = bq.compress(x, pipeline=pipe, target="numpy")
        assert bq.compress(x, pipeline=pipe, target="cuda") == data
        assert np.array_equal(bq.decompress(data, target="cuda"), x)


@pytest.mark.parametrize("mode", ["rel", "pwrel"])
def test_the_preset_makes_the_same_archives_there(bundled_field: Path, mode: str) -> None:
    x = np.load(bundled_field)
    plan = bq.Pipeline.from_preset("archive").plan(x, target="cuda", mode=mode)
    assert plan.forward.launches == plan.inverse.launches == 2
    assert set(plan.forward.transfers) == set(plan.inverse.transfers) == {"kept"}
    data = bq.compress(x, 1e-3, mode, pipeline="archive", target="host")
    assert bq.compress(x, 1e-3, mode, pipeline="archive", target="cuda") == data
    assert bq.decompress(data, target="cuda").tobytes() == bq.decompress(data, target="host").tobytes()


def test_archives_that_stay_on_the_device() -> None:
    target: Any = discovery.registry().target("cuda")
    x = np.cumsum(np.random.default_rng(0).standard_normal(300_000)).astype(np.float32)
    x[::5000] = np.nan
    placed = target.memory.upload(x)
    held = bq.compress_on_device(placed, 1e-3, "rel", pipeline="archive")
    data = held.to_bytes()
    assert data == bq.compress(x, 1e-3, "rel", pipeline="archive", target="numpy")
    wanted = bq.decompress(data)
    assert target.memory.download(held.decompress()).tobytes() == wanted.tobytes()
    part = target.memory.download(held.decompress(flat=slice(100_000, 150_000)))
    assert part.tobytes() == wanted[100_000:150_000].tobytes()


def test_damage_is_refused() -> None:
    from briquette.archive import Archive
    from briquette_conformance.resealing import reseal

    x = codes(50_000, "int32")
    data = bytearray(bq.compress(x, pipeline=bq.chain("huffman"), target="numpy"))
    at = Archive.open(bytes(data)).segments[0].at.payload_at
    refused = 0
    for where in range(at, len(data), 997):
        mutant = bytearray(data)
        mutant[where] ^= 0x5A
        try:
            wanted = bq.decompress(bytes(reseal(mutant)), target="numpy")
        except ArchiveError:
            refused += 1
            with pytest.raises(ArchiveError):
                bq.decompress(bytes(reseal(mutant)), target="cuda")
        else:
            assert np.array_equal(bq.decompress(bytes(reseal(mutant)), target="cuda"), wanted)
    assert refused

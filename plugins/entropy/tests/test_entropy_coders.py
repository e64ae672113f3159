"""Both coders: lossless for every stream, the same bytes on every target, parts without the rest, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from entropy_data import DTYPES, SIZES, archive_of, streams

import briquette as bq
import briquette_entropy
from briquette import discovery
from briquette.archive import Archive
from briquette.errors import ArchiveError, PipelineError
from briquette.sources import included
from briquette_conformance.resealing import reseal

CODERS = ("huffman", "run-length")


def host_or_skip() -> None:
    reason = discovery.registry().target("host").unavailable()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coder", CODERS)
def test_every_stream_comes_back_and_its_bytes_are_those_of_every_target(coder: str, dtype: str, size: int) -> None:
    host_or_skip()
    pipe = bq.chain(coder)
    for name, x in streams(dtype, size):
        data = archive_of(pipe, x)
        for threads in (1, 3):
            assert archive_of(pipe, x, "host", threads=threads) == data, name
        for target in ("numpy", "host"):
            y = bq.decompress(data, target=target)
            assert y.dtype == x.dtype, name
            assert np.array_equal(y, x), name


@pytest.mark.parametrize("target", ["numpy", "host"])
@pytest.mark.parametrize("coder", CODERS)
def test_a_part_needs_its_own_chunks_only(coder: str, target: str) -> None:
    host_or_skip()
    x = np.random.default_rng(0).poisson(3, 70 * 8192 + 11).astype(np.int32)
    x[1000:9000] = 0
    data = bytearray(archive_of(bq.chain(coder), x, "host"))
    data[-1] ^= 0xFF  # in the last chunk, of another checksum block than what is asked for
    assert np.array_equal(bq.decompress(bytes(data), flat=slice(8000, 30_000), target=target), x[8000:30_000])
    with pytest.raises(ArchiveError, match="checksum"):
        bq.decompress(bytes(data), target=target)


@pytest.mark.parametrize("coder", CODERS)
def test_the_plan_says_that_it_is_a_barrier_with_a_kernel_of_its_own(coder: str) -> None:
    host_or_skip()
    pipe = bq.chain("linear-quantizer", "lorenzo-1d", coder)
    plan = pipe.plan(np.zeros(10, np.float32), target="host")
    group = ("linear-quantizer", "lorenzo-1d")
    assert plan.forward.groups == plan.inverse.groups == (group,)
    assert plan.forward.launches == plan.inverse.launches == 2
    assert not plan.forward.transfers
    assert plan.forward.elided == (("linear-quantizer", "codes"),)
    for direction in (plan.forward, plan.inverse):
        (why,) = direction.reasons
        assert why.reason == f"{coder} declares no role: UNFUSABLE, a barrier"
    assert f"kernel of its own (the stage): {coder}" in plan.explain()
    assert plan.random_access


@pytest.mark.parametrize("coder", CODERS)
def test_codes_only(coder: str) -> None:
    with pytest.raises(PipelineError, match=f"stage '{coder}' takes a stream of integers, not float32"):
        bq.chain(coder).plan(np.zeros(3, np.float32))


@pytest.mark.parametrize("coder", CODERS)
def test_words_that_the_coder_does_not_write_are_refused_or_decode_alike(coder: str) -> None:
    host_or_skip()
    rng = np.random.default_rng(7)
    refused = decoded = 0
    for name, x in streams("int16", 8193):
        data = archive_of(bq.chain(coder), x)
        archive = Archive.open(data)
        at, end = archive.segments[0].at.payload_at, len(data)
        if archive.header.raw or at >= end:
            continue
        for _ in range(60):
            mutant = bytearray(data)
            for where in rng.integers(at, end, rng.integers(1, 4)):
                mutant[where] ^= 1 << rng.integers(8)
            found = []
            for target in ("numpy", "host"):
                try:
                    found.append(bq.decompress(bytes(reseal(mutant)), target=target).tobytes())
                except ArchiveError:
                    found.append(b"refused")
            assert found[0] == found[1], name
            refused += found[0] == b"refused"
            decoded += found[0] != b"refused"
    assert refused > 10
    assert decoded > 10


@pytest.mark.parametrize("target", ["numpy", "host"])
@pytest.mark.parametrize("coder", CODERS)
def test_the_order_of_memory_and_its_alignment_do_not_matter(coder: str, target: str) -> None:
    host_or_skip()
    x = np.arange(9000, dtype=np.int64) // 7
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.int64)
    data = archive_of(bq.chain(coder), x)
    assert archive_of(bq.chain(coder), odd, target) == data
    room = np.empty(x.nbytes + 1, np.uint8)[1:].view(np.int64)
    assert np.array_equal(bq.decompress(data, target=target, out=room), x)


def test_the_kernels_need_no_other_pack() -> None:
    folder = Path(briquette_entropy.__file__).parent / "cuda"
    found = {name for path in folder.glob("*.cuh") for name in included(path.read_text(encoding="utf-8"))}
    assert found == {f"briquette_entropy/cuda/{name}.cuh" for name in ("compiler", "chunk_coder")}

"""Arrays in device memory: frameworks, alignment, streams, threads, archives that stay on the device."""

from __future__ import annotations

import concurrent.futures
import struct
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery
from briquette.errors import BriquetteError, UnsupportedInput
from briquette_conformance.resealing import reseal

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")


def walk(n: int, dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.cumsum(np.random.default_rng(seed).standard_normal(n)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["fast", "planes", "zigzag"])
def test_an_archive_on_the_device_is_the_archive(dtype: str, preset: str) -> None:
    x = walk(200_003, dtype)
    x[1000:1100] = np.nan
    archive = bq.compress_on_device(cupy.asarray(x), 1e-3, "rel", pipeline=preset)
    blob = bq.compress(x, 1e-3, "rel", pipeline=preset, target="numpy")
    assert archive.to_bytes() == blob
    restored = archive.decompress()
    assert cupy.asnumpy(cupy.asarray(restored)).tobytes() == bq.decompress(blob, target="numpy").tobytes()
    out = cupy.full(x.size, cupy.nan, dtype)
    assert archive.decompress(out) is out
    assert cupy.asnumpy(out).tobytes() == bq.decompress(blob, target="numpy").tobytes()


@pytest.mark.parametrize("shift", range(4))
def test_unaligned_device_arrays(shift: int) -> None:
    x = walk(100_000)
    whole = cupy.asarray(x)
    assert bytes(bq.compress(whole[shift:], 1e-3)) == bytes(bq.compress(x[shift:], 1e-3, target="numpy"))
    out = cupy.zeros(x.size, cupy.float32)
    archive = bq.compress_on_device(whole[: x.size - shift], 1e-3)
    archive.decompress(out[shift:])
    assert cupy.asnumpy(out[shift:]).tobytes() == bq.decompress(archive.to_bytes(), target="numpy").tobytes()


def test_pytorch_and_dlpack() -> None:
    torch = pytest.importorskip("torch")
    x = walk(50_000)
    tensor = torch.from_numpy(x).cuda().reshape(100, 500)
    archive = bq.compress_on_device(tensor, 1e-3)
    assert archive.shape == (100, 500)
    assert archive.to_bytes() == bq.compress(x.reshape(100, 500), 1e-3, target="numpy")
    back = torch.as_tensor(archive.decompress(), device="cuda")
    assert back.shape == (100, 500)
    assert float((back - tensor).abs().max()) <= 1e-3
    again = torch.from_dlpack(archive.decompress())
    assert torch.equal(again, back)
    assert bytes(bq.compress(tensor.requires_grad_(), 1e-3)) == archive.to_bytes()


def test_tensors_of_16_bits() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    x = torch.from_numpy(walk(50_000)).cuda().reshape(100, 500) / 8
    for dtype in (torch.float16, torch.bfloat16):
        tensor = x.to(dtype)
        archive = bq.compress_on_device(tensor, 1e-1)
        assert archive.dtype == str(dtype).removeprefix("torch.")
        back = torch.zeros_like(tensor)
        assert archive.decompress(out=back) is back
        assert float((back.double() - tensor.double()).abs().max()) <= 1e-1
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            moved = tensor.clone()
        assert bytes(bq.compress(moved, 1e-1)) == archive.to_bytes()


def test_strided_and_foreign_dtypes_are_refused_with_a_remedy() -> None:
    x = cupy.zeros((100, 100), cupy.float32)
    with pytest.raises(UnsupportedInput, match="not C-contiguous; copy it first"):
        bq.compress(x.T[1:], 1e-3)
    with pytest.raises(BriquetteError, match="complex64"):
        bq.compress(x.astype(cupy.complex64), 1e-3)
    with pytest.raises(BriquetteError, match=r"x\.view\(uint8\)"):
        bq.compress(x != 0, 1e-3)


def test_a_named_target_brings_device_arrays_over() -> None:
    x = walk(30_000)
    assert bytes(bq.compress(cupy.asarray(x), 1e-3, target="numpy")) == bytes(bq.compress(x, 1e-3, target="numpy"))


def test_two_streams_and_many_threads() -> None:
    fields = [walk(120_000 + 7 * i, seed=i) for i in range(12)]
    expected = [bytes(bq.compress(x, 1e-3, "rel", target="numpy")) for x in fields]

    def work(i: int) -> bytes:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.asarray(fields[i])
            stream.synchronize()
            made = b""
            for _ in range(5):
                archive = bq.compress_on_device(x, 1e-3, "rel", stream=stream)
                made = archive.to_bytes()
                archive.decompress()
            stream.synchronize()
        return made

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(12))) == expected


def test_work_in_a_thread_leaves_the_callers_context_alone() -> None:
    from cuda.bindings import driver

    def work() -> tuple[int, int]:
        before = int(driver.cuCtxGetCurrent()[1])
        bq.compress(walk(1000), 1e-3, target="cuda")
        return before, int(driver.cuCtxGetCurrent()[1])

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        before, after = pool.submit(work).result()
    assert before == after


def test_memory_stays_flat_and_errors_do_not_stick() -> None:
    from cuda.bindings import driver

    x = cupy.asarray(walk(1 << 20))
    with pytest.raises(BriquetteError):
        bq.compress(x, 0.0)
    for i in range(300):
        archive = bq.compress_on_device(x[: (1 << 20) - 999 * (i % 7)], 1e-3)
        archive.decompress()
        if i == 100:
            cupy.cuda.Device().synchronize()
            free = driver.cuMemGetInfo()[1]
        if i % 50 == 0:
            with pytest.raises(BriquetteError):
                bq.compress(x.astype(cupy.complex64), 1e-3)
    del archive
    cupy.cuda.Device().synchronize()
    assert free - driver.cuMemGetInfo()[1] < 64 << 20


def coded(preset: str, x: np.ndarray[Any, Any]) -> bytes:
    """Return the archive of a field with values kept aside, or of integers where the preset takes no bound."""
    if any(stage.needs_bound for stage in bq.Pipeline.from_preset(preset).graph.nodes.values()):
        x[np.random.default_rng().random(x.size) < 0.05] = np.nan
        x[5000:9000] = np.inf
        blob = bytes(bq.compress(x, 1e-3, "rel", pipeline=preset, target="numpy"))
    else:
        blob = bytes(bq.compress(np.round(x).astype(np.int32), pipeline=preset, target="numpy"))
    assert not bq.info(blob)["raw"]
    return blob


@pytest.mark.parametrize("preset", discovery.registry().presets())
def test_truncated_archives_are_refused(preset: str) -> None:
    blob = coded(preset, walk(20_000))
    for n in [*range(0, len(blob), 13), *range(len(blob) - 40, len(blob))]:
        with pytest.raises(BriquetteError):
            bq.decompress(blob[:n], target="cuda")
        if n > 60:
            cut = bytearray(blob[:n])
            struct.pack_into("<QI", cut, 24, n, min(48 + int.from_bytes(cut[32:36], "little"), n) - 48)
            with pytest.raises(BriquetteError):
                bq.decompress(bytes(reseal(cut)), target="cuda")


@pytest.mark.parametrize("preset", discovery.registry().presets())
def test_mutants_are_errors_or_arrays_and_agree_with_the_reference(preset: str) -> None:
    rng = np.random.default_rng()
    blob = coded(preset, walk(20_000))
    head = bq.info(blob)["header_bytes"]
    refused = decoded = 0
    for _ in range(1500):
        data = bytearray(blob)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(head, len(data))] = rng.integers(256)
        data = bytearray(reseal(bytes(data)))
        answers = []
        for target in ("numpy", "cuda"):
            try:
                answers.append(bq.decompress(bytes(data), target=target).tobytes())
            except BriquetteError:
                answers.append(b"refused")
        assert answers[0] == answers[1]
        refused += answers[0] == b"refused"
        decoded += answers[0] != b"refused"
    assert refused
    assert decoded

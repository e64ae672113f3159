"""Data on one GPU while another is current: work goes where the data are, and nobody's current device changes."""

from __future__ import annotations

import numpy as np
import pytest

import briquette as bq

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("this machine has one GPU")


def walk(n: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(4).standard_normal(n)).astype(np.float32)


@pytest.mark.parametrize("preset", ["fast", "planes", "zigzag"])
def test_data_on_device_1_while_device_0_is_current(preset: str) -> None:
    host = walk(300_007)
    host[5000:5100] = np.nan
    expected = bytes(bq.compress(host, 1e-3, "rel", pipeline=preset, target="numpy"))
    with cupy.cuda.Device(1):
        x = cupy.asarray(host)
        cupy.cuda.Device(1).synchronize()
    with cupy.cuda.Device(0):
        archive = bq.compress_on_device(x, 1e-3, "rel", pipeline=preset)
        assert cupy.cuda.runtime.getDevice() == 0
        assert archive.to_bytes() == expected
        assert bytes(bq.compress(x, 1e-3, "rel", pipeline=preset, fusion="off")) == expected
        back = archive.decompress()
        assert cupy.cuda.runtime.getDevice() == 0
        assert back.device == 1
    with cupy.cuda.Device(1):
        assert cupy.asnumpy(cupy.asarray(back)).tobytes() == bq.decompress(expected, target="numpy").tobytes()


def test_both_at_once() -> None:
    host = walk(1_000_003)
    expected = bytes(bq.compress(host, 1e-3, target="numpy"))
    arrays = []
    for device in (0, 1):
        with cupy.cuda.Device(device):
            arrays.append(cupy.asarray(host))
            cupy.cuda.Device(device).synchronize()
    archives = [bq.compress_on_device(x, 1e-3) for _ in range(5) for x in arrays]
    assert {a.to_bytes() for a in archives} == {expected}


@pytest.mark.parametrize("current", [0, 1])
def test_calls_that_come_again_on_both(current: int) -> None:
    pipe, n = bq.Pipeline.from_preset("fast"), 120_000
    arrays = []
    for device in (0, 1):
        with cupy.cuda.Device(device):
            arrays.append((cupy.empty(n, "float32"), cupy.empty(n, "float32")))
    for turn in range(8):
        for device, (x, out) in enumerate(arrays):
            host = walk(n) * (1 + turn + 10 * device)
            host[turn :: 500 + turn] = np.nan if turn % 4 == 3 else 1.0
            with cupy.cuda.Device(device):
                x.set(host)
                out.fill(0)
                cupy.cuda.Device(device).synchronize()
            with cupy.cuda.Device(current):
                archive = bq.compress_on_device(x, 1e-3, "rel", pipeline=pipe)
                archive.decompress(out)
                assert cupy.cuda.runtime.getDevice() == current
                expected = bytes(bq.compress(host, 1e-3, "rel", pipeline=pipe, target="numpy"))
                assert archive.to_bytes() == expected
            with cupy.cuda.Device(device):
                assert out.get().tobytes() == bq.decompress(expected, target="numpy").tobytes()


def test_torch_on_device_1() -> None:
    torch = pytest.importorskip("torch")
    host = walk(50_000)
    tensor = torch.from_numpy(host).to("cuda:1")
    assert bytes(bq.compress(tensor, 1e-3)) == bytes(bq.compress(host, 1e-3, target="numpy"))


def test_a_captured_run_on_device_1() -> None:
    host = walk(70_000)
    with cupy.cuda.Device(1):
        x = cupy.asarray(host)
        cupy.cuda.Device(1).synchronize()
    captured = bq.Pipeline.from_preset("fast").capture(x, 1e-3)
    captured.compress()
    captured.decompress()
    assert captured.archive().to_bytes() == bytes(bq.compress(host, 1e-3, target="numpy"))

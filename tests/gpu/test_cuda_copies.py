"""Arrays of NumPy on `cuda`: the copies through page-locked slots, of every size, by many threads, and the bytes they make."""

from __future__ import annotations

import concurrent.futures
import time
from typing import Any

import numpy as np
import pytest

import briquette as bq

pytestmark = pytest.mark.gpu

#: elements around the sizes at which copies take another way: 64 KiB, 1 MiB, the slots of a lane, many slots
COUNTS = [1, 100, 16_383, 16_384, 16_385, 65_537, 262_144, 262_145, (1 << 19) + 1, 3 * (1 << 20) + 7, (1 << 24) + 12_345]


def field(n: int, dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    x = np.sin(np.arange(n) / 300).astype(dtype)
    x += (np.random.default_rng(seed + n).standard_normal(n) / 40).astype(dtype)
    return x


def assert_same(x: np.ndarray[Any, Any], preset: str = "fast") -> bytes:
    """Compress and decompress on numpy and on cuda; return the archive."""
    archive = bytes(bq.compress(x, 1e-3, pipeline=preset, target="numpy"))
    expected = bq.decompress(archive, target="numpy")
    for _ in range(2):  # the second time slots are used again
        made = bq.compress(x, 1e-3, pipeline=preset, target="cuda")
        assert type(made) is bytes
        assert made == archive
        back = bq.decompress(made, target="cuda")
        assert back.dtype == x.dtype
        assert back.tobytes() == expected.tobytes()
    return archive


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", COUNTS)
def test_sizes(n: int, dtype: str) -> None:
    assert_same(field(n, dtype))


def test_staged_runs_copy_the_same_way() -> None:
    x = field((1 << 20) + 3)
    archive = assert_same(x)
    assert bq.compress(x, 1e-3, target="cuda", fusion="off") == archive
    assert bq.decompress(archive, target="cuda", fusion="off").tobytes() == bq.decompress(archive, target="numpy").tobytes()


def test_what_does_not_compress_is_held_raw() -> None:
    x = np.random.default_rng(1).standard_normal(700_001).astype(np.float32)
    archive = bytes(bq.compress(x, 1e-30, target="numpy"))
    made = bq.compress_run(x, 1e-30, target="cuda")
    assert (made.raw, made.archive) == (True, archive)


def test_outliers_come_back_through_the_same_copies() -> None:
    x = field(3_000_000)
    x[np.random.default_rng(2).random(x.size) < 0.2] = np.nan
    assert_same(x)


def test_archives_on_the_device_become_the_same_bytes() -> None:
    cupy = pytest.importorskip("cupy")
    for n in COUNTS:
        x = field(n)
        if n > 1000:
            x[::501] = np.inf
        archive = bq.compress_on_device(cupy.asarray(x), 1e-3)
        if not bq.info(bq.compress(x, 1e-3, target="numpy"))["raw"]:
            assert archive.to_bytes() == bq.compress(x, 1e-3, target="numpy")


@pytest.mark.parametrize("order", ["read-only", "unaligned", "F", "reversed", "big-endian"])
def test_any_memory_order(order: str) -> None:
    x = field(1000 * 1500).reshape(1000, 1500)
    if order == "read-only":
        x.flags.writeable = False
    elif order == "unaligned":
        held = np.zeros(x.nbytes + 3, np.uint8)
        held[3:] = x.view(np.uint8).ravel()
        x = held[3:].view(np.float32).reshape(x.shape)
        assert x.ctypes.data % 4
    elif order == "F":
        x = np.asfortranarray(x)
    elif order == "reversed":
        x = x[::-1, ::2]
    else:
        x = x.astype(">f4")
    assert_same(x)


def test_the_input_may_change_and_outputs_may_be_given() -> None:
    x = field(2_000_001)
    archive = bytes(bq.compress(x, 1e-3, target="numpy"))
    expected = bq.decompress(archive, target="numpy")
    for _ in range(20):
        given, room = x.copy(), bytearray(bq.max_archive_bytes(x))
        made = bq.compress(given, 1e-3, target="cuda", out=room)
        given[:] = 0
        assert made == archive
        blob = bytearray(archive)
        out = np.full_like(x, np.nan)
        assert bq.decompress(blob, target="cuda", out=out) is out
        blob[:] = bytes(len(blob))
        assert out.tobytes() == expected.tobytes()


def test_many_threads_at_once() -> None:
    fields = [field(300_000 + 70_001 * i, seed=i) for i in range(24)]
    expected = [bytes(bq.compress(x, 1e-3, target="numpy")) for x in fields]

    def work(i: int) -> bool:
        same = True
        for _ in range(5):
            made = bq.compress(fields[i], 1e-3, target="cuda")
            back = bq.decompress(made, target="cuda")
            same = same and made == expected[i] and float(np.abs(back - fields[i]).max()) <= 1e-3
        return same

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert all(pool.map(work, range(24)))


def test_page_locked_tensors_go_without_a_detour(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from briquette_target_cuda import staging

    x = field(4_000_000)
    archive = bytes(bq.compress(x, 1e-3, target="numpy"))
    pinned, out = torch.empty(x.size, pin_memory=True), torch.empty(x.size, pin_memory=True)
    pinned.numpy()[:] = x
    monkeypatch.setattr(staging.Staging, "upload", lambda *_: pytest.fail("a page-locked array was staged"))
    assert bq.compress(pinned, 1e-3, target="cuda") == archive
    monkeypatch.undo()
    assert bq.decompress(archive, target="cuda", out=out.numpy()).tobytes() == bq.decompress(archive, target="numpy").tobytes()


def test_staging_is_no_slower_than_the_drivers_own_way() -> None:
    """A check against a blunder, not a benchmark: 256 MB each way, the best of five."""
    from briquette_target_cuda import staging
    from briquette_target_cuda.target import Session

    data, out = np.ones(1 << 28, np.uint8), np.ones(1 << 28, np.uint8)
    session = Session(0, 1)
    seconds: dict[int, list[float]] = {staging.SMALL: [], 1 << 40: []}
    with session.current(), pytest.MonkeyPatch.context() as patch:
        memory = session.memory(data.nbytes)
        for _ in range(5):
            for limit, found in seconds.items():
                patch.setattr("briquette_target_cuda.target.SMALL", limit)
                begin = time.perf_counter()
                session.write(memory.pointer, data)
                session.read(memory.pointer, out)
                found.append(time.perf_counter() - begin)
    staged, plain = (min(found) for found in seconds.values())
    print(f"512 MB through the slots {1e3 * staged:.1f} ms, pageable {1e3 * plain:.1f} ms")
    assert staged < 1.2 * plain

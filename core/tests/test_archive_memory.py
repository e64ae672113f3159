"""Archives in any memory, at any address, without copies, and with checksums in threads."""

from __future__ import annotations

import mmap
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_kit import header, same, value, written

from briquette.archive import Archive, ArchiveWriter, raw_size
from briquette.errors import UsageError


@pytest.mark.parametrize("shift", range(9))
def test_any_address(shift: int) -> None:
    h = header((64 * 32 * 2,))
    values = [value([3, 0, 1, 2] * 32, 5), np.arange(h.count, dtype=np.int16)]
    blob = written(h, *values)
    out = np.full(raw_size(h) + 16, 0xEE, np.uint8)[shift:]
    assert written(h, *values, out=out) == blob
    room = np.empty(len(blob) + 16, np.uint8)[shift : shift + len(blob)]
    room[:] = np.frombuffer(blob, np.uint8)
    a = Archive.open(room)
    a.verify_all()
    view = a.chunked(0)
    assert same(view.value, values[0])  # type: ignore[arg-type]
    assert view.words.flags.aligned
    assert view.sizes.flags.aligned
    assert np.shares_memory(view.words, room) == (shift % 4 == 0)
    assert np.array_equal(a.stream(1, "int16").values, values[1])  # type: ignore[arg-type]


def test_every_kind_of_buffer_is_read_in_place(tmp_path: Path) -> None:
    h = header((320,))
    v = value([4] * 10)
    blob = written(h, v)
    path = tmp_path / "a.brq"
    path.write_bytes(blob)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    padded = np.frombuffer(blob + bytes(-len(blob) % 8), np.int64)
    if len(blob) % 8 == 0:
        assert Archive.open(padded).header == h
    for buffer in (
        blob,
        bytearray(blob),
        memoryview(blob),
        np.frombuffer(blob, np.uint8),
        np.memmap(path, np.uint8, "r"),
        mapped,
    ):
        a = Archive.open(buffer)
        assert same(a.chunked(0).value, v)
        assert np.shares_memory(a.chunked(0).words, np.frombuffer(buffer, np.uint8))


@pytest.mark.parametrize(
    "buffer", [None, "text", 3, np.zeros((4, 4), np.uint8).T[::2], memoryview(b"abcdef")[::2], np.array([None])]
)
def test_what_is_no_buffer(buffer: Any) -> None:
    with pytest.raises(UsageError, match="contiguous"):
        Archive.open(buffer)


def test_writing_and_opening_copy_nothing_large() -> None:
    h = header((4_000_000,), 8192)
    tracemalloc.start()
    try:
        out = np.empty(raw_size(h), np.uint8)
        base = tracemalloc.get_traced_memory()[0]
        writer = ArchiveWriter(h, 1, out)
        sink = writer.open_chunked(489, 3_000_000)
        sink.sizes[:] = 6000
        sink.words[:] = 1
        writer.close_chunked(6000 * 489, h.count)
        blob = writer.finish()
        a = Archive.open(blob)
        a.chunked(0).verify()
        assert tracemalloc.get_traced_memory()[1] - base < 100_000
    finally:
        tracemalloc.stop()


def test_checksums_of_blocks_may_run_in_threads() -> None:
    h = header((64 * 32 * 8,))
    values = [value([2] * 512, 3), np.arange(h.count, dtype=np.int8)]
    calls: list[int] = []

    with ThreadPoolExecutor(2) as pool:

        def run(work: Callable[[int], int], items: Sequence[int]) -> Iterable[int]:
            calls.append(len(items))
            return pool.map(work, items)

        writer = ArchiveWriter(h, 2, map=run)
        writer.add_chunked(values[0], h.count)  # type: ignore[arg-type]
        writer.add_stream(values[1])  # type: ignore[arg-type]
        blob = writer.finish()
        assert blob == written(h, *values)
        a = Archive.open(blob)
        a.verify_all(map=run)
        view = a.chunked(0)
        view.verify(64, 65, map=run)
        view.verify(0, 200, map=run)  # block 1 is verified already
        assert calls == [8, 8, 8, 8, 1, 3]

"""Archives that are written and read back: every kind of segment, in any memory, byte for byte the same."""

from __future__ import annotations

import dataclasses
import mmap
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette.archive import Archive, ArchiveWriter, Edge, Header, StageEntry, raw_size, write_raw
from briquette.archive.tools import edit_header, reseal
from briquette.errors import ArchiveError, DeclarationError, UsageError
from briquette.harness import Overflow
from briquette.ports import Chunked
from briquette.record import Bound

STAGES = (
    StageEntry("linear-quantizer", "linear-quantizer", "briquette-quantize", 1, "0.1.0", {"code": "int32"}),
    StageEntry("lorenzo-1d", "lorenzo-1d", "briquette-lorenzo", 1, "0.1.0", {"region": 256}),
    StageEntry("plain-rate", "plain-rate", "briquette-bitpack", 1, "0.1.0", {"segment": 32}),
)
STATE = {
    "linear-quantizer": {
        "eb": 1.25e-3,
        "low": -1.0,
        "high": 3.5,
        "quant_step": 400.5,
        "dequant_step": 2.5e-3,
        "element_count": 1_000_000,
        "fill_code": -123_456,
        "exact": False,
    }
}


def header(shape: tuple[int, ...], chunk: int = 32, dtype: str = "float32", **changes: Any) -> Header:
    base = Header("0.1.0", dtype, "<", shape, chunk, Bound(1e-3, "rel"), STAGES, None, STATE)
    return dataclasses.replace(base, **changes)


def value(sizes: Sequence[int], seed: int = 0) -> Chunked:
    words = np.random.default_rng(seed).integers(0, 2**32, sum(sizes), np.uint32)
    return Chunked(np.array(sizes, np.uint32), words)


def written(h: Header, *values: Chunked | np.ndarray[Any, Any], out: Any = None) -> bytes:
    writer = ArchiveWriter(h, len(values), out)
    for v in values:
        if isinstance(v, Chunked):
            writer.add_chunked(v, h.count)
        else:
            writer.add_stream(v)
    return bytes(writer.finish())


def expected_size(h: Header, values: Sequence[Chunked | np.ndarray[Any, Any]]) -> int:
    """The bytes of the archive by the words of the format page."""
    end, tables = 48 + len(h.encode(bytes(40 * len(values)))), False
    for i, v in enumerate(values):
        blocks = -(-h.count // (64 * h.chunk))
        if isinstance(v, Chunked):
            if not v.sizes.any() and (tables or i < len(values) - 1):
                continue
            table, payload = 16 * blocks + 4 * len(v.sizes), v.words.nbytes
        else:
            table, payload = 8 * blocks, v.nbytes
        tables = True
        end = -(-(-(-end // 64) * 64 + table) // 64) * 64 + payload
    return end


def same(view: Chunked, v: Chunked) -> bool:
    return np.array_equal(view.sizes, v.sizes) and np.array_equal(view.words, v.words)


# -- headers -----------------------------------------------------------------------------------------------


def test_header_round_trip() -> None:
    stages = (
        *STAGES,
        StageEntry("again", "lorenzo-1d", "other-pack", 7, "2.0rc1", {"a": None, "b": True, "c": b"\0", "d": "x", "e": -1.5}),
    )
    edges = (Edge("", "in", "linear-quantizer", "in"), Edge("linear-quantizer", "out", "again", "in"))
    h = header((3, 0, 5), 8192, "int16", byteorder=">", stages=stages, edges=edges, bound=Bound(0.1, "noa"))
    descriptors = bytes(range(80))
    assert Header.decode(h.encode(descriptors), raw=False) == (h, descriptors)
    raw = h.as_raw()
    assert Header.decode(raw.encode(descriptors[:40]), raw=True) == (raw, descriptors[:40])
    assert (raw.dtype, raw.byteorder, raw.shape, raw.bound, raw.chunk) == ("int16", ">", (3, 0, 5), h.bound, 8192)


def test_headers_are_compact() -> None:
    h = header((500, 500, 500), 8192)
    assert 48 + len(h.encode(bytes(80))) < 512
    assert 48 + len(h.as_raw().encode(bytes(40))) < 200


def test_the_longest_raw_header_of_a_practical_array_is_compact() -> None:
    h = header((2**40, 1, 1, 1, 1, 1, 1, 1), dtype="float64", core_version="10.11.12.dev345").as_raw()
    assert 48 + len(h.encode(bytes(40))) < 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": (1,) * 65}, "65 dimensions"),
        ({"shape": (2**31, 2**30)}, "2\\*\\*63"),
        ({"shape": (2**62, 2, 0)}, "2\\*\\*63"),
        ({"shape": (-1,)}, "no count"),
        ({"dtype": "float16"}, "float16"),
        ({"dtype": "int8", "byteorder": ">"}, "byte order"),
        ({"chunk": 0}, "chunk of 0"),
        ({"chunk": 65537}, "chunk of 65537"),
        ({"stages": ()}, "no stages"),
        ({"stages": (STAGES[0], STAGES[0])}, "not unique"),
        ({"stages": (dataclasses.replace(STAGES[0], pack="a:b"),)}, "pack:stage"),
        ({"state": {"nobody": {"x": 1}}}, "nobody"),
        ({"state": {"plain-rate": {"x": np.int64(3)}}}, "int64"),
        ({"state": {"plain-rate": {"x": (1, 2)}}}, "is a tuple"),
        ({"edges": (Edge("", "out", "plain-rate", "in"),)}, "unknown node"),
    ],
)
def test_headers_that_no_reader_takes_are_not_written(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(header((4,)), **changes).encode(bytes(40))


def test_state_without_values_leaves_no_trace() -> None:
    assert header((4,), state={**STATE, "plain-rate": {}}).encode(bytes(40)) == header((4,)).encode(bytes(40))


# -- segments ----------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_round_trip(data: st.DataObject) -> None:
    chunk = data.draw(st.integers(1, 70))
    chunks = data.draw(st.integers(1, 140))
    count = chunk * (chunks - 1) + data.draw(st.integers(1, chunk))
    sizes = st.lists(st.integers(0, 9), min_size=chunks, max_size=chunks)
    zeros = st.just([0] * chunks)
    values: list[Any] = [value(data.draw(sizes | zeros), k) for k in range(data.draw(st.integers(1, 3)))]
    if data.draw(st.booleans()):
        values.insert(
            data.draw(st.integers(0, len(values))), np.arange(count, dtype=data.draw(st.sampled_from(["<u1", ">i2", "<f8"])))
        )
    h = header((count,), chunk, "float64")
    expected = expected_size(h, values)
    if expected > raw_size(h):
        with pytest.raises(Overflow):
            written(h, *values)
        return
    blob = written(h, *values)
    assert len(blob) == expected
    a = Archive.open(blob)
    assert a.header == h
    a.verify_all()
    for i, v in enumerate(values):
        if isinstance(v, Chunked):
            view = a.chunked(i)
            assert same(view.value, v)
            assert view.count == count
            assert view.offsets.tolist() == [0, *np.cumsum(v.sizes, dtype=np.uint64).tolist()]
        else:
            assert np.array_equal(a.stream(i, v.dtype.name).values, v)
    assert reseal(blob) == blob


def test_payload_is_written_in_place_whatever_the_memory_held() -> None:
    h = header((64 * 32 * 3,))
    outliers, main = value([0, 3] * 96, 1), value([7] * 192, 2)
    blobs = set()
    for poison in (0x00, 0xFF, 0xA5):
        out = np.full(raw_size(h) + 100, poison, np.uint8)
        writer = ArchiveWriter(h, 3, out)
        for v in (outliers, Chunked(np.zeros(192, np.uint32), np.empty(0, np.uint32)), main):
            sink = writer.open_chunked(192, 192 * 40)
            assert np.shares_memory(sink.words, out)
            assert np.shares_memory(sink.sizes, out)
            sink.sizes[:] = v.sizes
            sink.words[: len(v.words)] = v.words
            writer.close_chunked(len(v.words), h.count)
        blob = writer.finish()
        assert np.shares_memory(np.frombuffer(blob, np.uint8), out)
        assert np.all(out[raw_size(h) :] == poison)
        blobs.add(bytes(blob))
    assert blobs == {written(h, outliers, value([0] * 192), main)}
    a = Archive.open(blobs.pop())
    assert [s.kind for s in a.segments] == ["chunked", "empty", "chunked"]
    assert all(s.at.offset % 64 == 0 and s.at.payload_at % 64 == 0 for s in a.segments)


def test_a_raw_archive_does_not_depend_on_the_memory_either() -> None:
    x = np.arange(100, dtype=np.float32)
    blobs = {bytes(write_raw(header(x.shape), x, np.full(1000, poison, np.uint8))) for poison in (0, 0x5A, 0xFF)}
    assert blobs == {bytes(write_raw(header(x.shape), x))}


def test_a_stream_is_written_in_place() -> None:
    h = header((5000,), 32, "float64")
    writer = ArchiveWriter(h, 2)
    stream = writer.open_stream(5000, "int16")
    stream[:] = np.arange(5000)
    writer.close_stream()
    writer.add_stream(np.empty(0, np.uint8))
    a = Archive.open(writer.finish())
    assert [s.kind for s in a.segments] == ["stream", "empty"]
    view = a.stream(0, "int16")
    view.verify(2048, 4096)
    assert view.values.tolist() == list(range(5000))
    assert a.stream(1, "uint8").count == 0


def test_where_everything_is_empty_the_last_segment_accounts_for_the_elements() -> None:
    h = header((320,))
    nothing = value([0] * 10)
    a = Archive.open(written(h, nothing, nothing))
    assert [s.kind for s in a.segments] == ["empty", "chunked"]
    for i in range(2):
        a.chunked(i).verify()
        assert same(a.chunked(i).value, nothing)
    a.verify_all()


def test_an_empty_segment_of_a_padded_stream_keeps_its_table() -> None:
    h = header((320,), 32, "float64")
    writer = ArchiveWriter(h, 2)
    writer.add_chunked(value([0] * 12), 384)
    writer.add_chunked(value([1] * 10), 320)
    a = Archive.open(writer.finish())
    assert [(s.kind, s.at.elements) for s in a.segments] == [("chunked", 384), ("chunked", 320)]
    assert a.chunked(0).chunks == 12


def test_sinks_that_account_for_too_few_elements_are_a_declaration_error() -> None:
    writer = ArchiveWriter(header((1000,)), 1)
    writer.add_stream(np.zeros(10, np.uint8))
    with pytest.raises(DeclarationError, match="10 elements; the array has 1000"):
        writer.finish()


def test_what_a_harness_reports_is_checked() -> None:
    for used, count in ((4, 96), (3, 97), (3, 64)):
        writer = ArchiveWriter(header((96,)), 1)
        writer.open_chunked(3, 10).sizes[:] = 1
        with pytest.raises(DeclarationError, match=f"{used} words and {count} elements"):
            writer.close_chunked(used, count)


def test_calls_out_of_order() -> None:
    writer = ArchiveWriter(header((96,)), 1)
    with pytest.raises(UsageError, match="open_chunked first"):
        writer.close_chunked(0, 0)
    with pytest.raises(UsageError, match="0 of 1 segments"):
        writer.finish()
    writer.open_stream(96, "uint8")[:] = 0
    with pytest.raises(UsageError, match="cannot be opened"):
        writer.open_chunked(3, 3)
    writer.close_stream()
    with pytest.raises(UsageError, match="cannot be opened"):
        writer.open_stream(96, "uint8")
    with pytest.raises(UsageError, match="see write_raw"):
        ArchiveWriter(header((96,)).as_raw(), 1)


# -- coded or raw ------------------------------------------------------------------------------------------


def test_the_archive_may_be_as_large_as_the_raw_one_and_not_larger() -> None:
    h = header((4000,), 1000)
    free = len(ArchiveWriter(h, 1).open_chunked(4, 10**9).words)
    exact = written(h, value([free, 0, 0, 0]))
    assert raw_size(h) - 4 < len(exact) <= raw_size(h)
    with pytest.raises(Overflow):
        written(h, value([free + 1, 0, 0, 0]))
    assert len(write_raw(h, np.zeros(4000, np.float32))) == raw_size(h)


def test_a_sink_is_no_larger_than_asked_for() -> None:
    assert len(ArchiveWriter(header((4000,)), 1).open_chunked(125, 77).words) == 77


def test_an_empty_table_that_would_not_fit_is_no_overflow() -> None:
    h = header((3200,), 1, dtype="int8")  # tables take more than the data
    stream = np.zeros(3200, np.int8)
    limit = raw_size(h)
    writer = ArchiveWriter(dataclasses.replace(h, chunk=65536, core_version="0"), 2)
    with pytest.raises(Overflow):
        writer.add_stream(stream)
    long = dataclasses.replace(h, dtype="int16")
    writer = ArchiveWriter(long, 2)
    writer.add_stream(stream)
    sink = writer.open_chunked(3200, 10)
    assert len(sink.words) == 0
    sink.sizes[:] = 0
    writer.close_chunked(0, 3200)
    assert len(writer.finish()) < raw_size(long) < limit + 3300


def test_a_table_that_does_not_fit_overflows_when_it_turns_out_to_be_needed() -> None:
    writer = ArchiveWriter(header((3200,), 1, dtype="int8"), 1)
    writer.open_chunked(3200, 10).sizes[:] = 0
    with pytest.raises(Overflow):
        writer.close_chunked(0, 3200)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1,), (7,)])
def test_arrays_smaller_than_a_header_are_raw(shape: tuple[int, ...]) -> None:
    h = header(shape)
    with pytest.raises(Overflow):
        ArchiveWriter(h, 1)
    x = np.full(shape, 2.5, np.float32)
    blob = write_raw(h, x)
    assert len(blob) == raw_size(h)
    a = Archive.open(blob)
    assert (a.header.raw, a.header.shape, a.header.stages, a.header.state, a.header.bound) == (True, shape, (), {}, h.bound)
    a.verify_all()
    assert np.array_equal(a.stream(0, "float32").values.reshape(shape), x)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<u1", ">i2"])
def test_raw_holds_any_memory_order_bit_for_bit(dtype: str) -> None:
    dt = np.dtype(dtype)
    bits = np.random.default_rng(1).integers(0, 256, 40 * 30 * dt.itemsize, np.uint8)
    x = bits.view(dt).reshape(30, 40).T[::2]
    h = header(x.shape, dtype=dt.name, byteorder=">" if dtype[0] == ">" else "<")
    a = Archive.open(write_raw(h, x))
    back = a.stream(0, dt.name).values
    assert back.tobytes() == np.ascontiguousarray(x).astype(dt.newbyteorder("<")).tobytes()
    assert a.header.byteorder == h.byteorder


def test_an_output_that_is_too_small_says_how_much_is_needed() -> None:
    h = header((4000,))
    v = value([1] * 125)
    size = len(written(h, v))
    assert written(h, v, out=bytearray(size)) == written(h, v)
    with pytest.raises(Overflow):
        written(h, v, out=bytearray(size - 1))
    with pytest.raises(Overflow):
        ArchiveWriter(h, 1, bytearray(10))
    with pytest.raises(UsageError, match=f"holds {size - 1} bytes; this archive may need {raw_size(h)}"):
        write_raw(h, np.zeros(4000, np.float32), bytearray(size - 1))
    with pytest.raises(UsageError, match="read-only"):
        ArchiveWriter(h, 1, bytes(5000))
    with pytest.raises(UsageError, match="strides"):
        ArchiveWriter(h, 1, np.zeros(5000, np.uint8)[::2])
    with pytest.raises(UsageError, match="does not match the header"):
        write_raw(h, np.zeros(3999, np.float32))


# -- memory ------------------------------------------------------------------------------------------------


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


# -- reading -----------------------------------------------------------------------------------------------


def test_a_segment_of_another_kind_than_the_pipeline_needs() -> None:
    h = header((640,))
    a = Archive.open(written(h, value([1] * 20), np.zeros(640, np.int8), value([0] * 20)))
    for call, words in (
        (lambda: a.chunked(1), "segment 1 is stream"),
        (lambda: a.stream(0, "int8"), "segment 0 is chunked"),
        (lambda: a.stream(1, "int16"), "640 elements in 640 bytes"),
        (lambda: a.stream(2, "int16"), "should hold 640 elements"),
        (lambda: a.chunked(3), "needs segment 3; the archive has 3"),
    ):
        with pytest.raises(ArchiveError, match=words):
            call()
    with pytest.raises(UsageError, match="chunks 3 to 21"):
        a.chunked(0).verify(3, 21)
    a.chunked(0).verify(3, 3)
    a.chunked(2).verify(0, 20)


def test_summary_is_what_info_shows() -> None:
    h = header((640,))
    s = Archive.open(written(h, value([1] * 20), value([0] * 20))).summary()
    assert s["format"] == "1.0"
    assert (s["elements"], s["original_bytes"], s["raw"], s["chunk"]) == (640, 2560, False, 32)
    assert s["ratio"] == 2560 / s["archive_bytes"]
    assert s["stages"][1]["stage"] == "briquette-lorenzo:lorenzo-1d"
    assert s["segments"] == [
        {"kind": "chunked", "elements": 640, "table_bytes": 96, "payload_bytes": 80},
        {"kind": "empty", "elements": 640, "table_bytes": 0, "payload_bytes": 0},
    ]


def test_keys_of_a_newer_minor_version_are_ignored_and_ours_are_not_extended() -> None:
    blob = written(header((320,)), value([4] * 10))
    extended = edit_header(blob, lambda fields: fields.update(zz="new"))
    with pytest.raises(ArchiveError, match="unknown fields \\['zz'\\]"):
        Archive.open(extended)
    newer = bytearray(extended)
    newer[10] = 3
    a = Archive.open(reseal(newer))
    a.verify_all()
    assert a.summary()["format"] == "1.3"
    assert a.header == header((320,))


@pytest.mark.serial
def test_small_archives_open_fast() -> None:
    blob = written(header((320,)), value([4] * 10), value([0] * 10))
    best = 1.0
    for _ in range(200):
        start = time.perf_counter()
        Archive.open(blob)
        best = min(best, time.perf_counter() - start)
    assert best < 250e-6  # 80 on a quiet machine

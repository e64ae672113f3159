"""Archives that are written and read back: every kind of segment, coded or raw."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest
from archive_kit import expected_size, header, same, value, written
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette.archive import Archive, ArchiveWriter, raw_size, write_raw
from briquette.errors import ArchiveError, DeclarationError, UsageError
from briquette.harness import Overflow
from briquette.ports import Chunked
from briquette_conformance.resealing import edit_header, reseal

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

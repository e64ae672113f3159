"""Archives that are truncated, damaged or hostile: refused cleanly, before anything large is allocated."""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from briquette.archive import Archive, ArchiveWriter, Header, StageEntry, cbor, write_raw
from briquette.archive.layout import Descriptor, unpack_descriptors
from briquette.errors import ArchiveError, ArchiveVersionError
from briquette.ports import Chunked
from briquette.record import Bound
from briquette_conformance.resealing import edit_header, reseal

STAGES = (
    StageEntry("first", "quantizer", "pack-a", 1, "0.1.0", {"code": "int32"}),
    StageEntry("coder", "coder", "pack-b", 1, "0.1.0", {"segment": 32}),
)
HEADER = Header(
    "0.1.0", "float32", "<", (130, 32), 32, Bound(1e-3, "abs"), STAGES, None, {"first": {"quant_step": 0.5, "fill_code": -3}}
)


def coded() -> bytes:
    """An archive of every kind of segment: empty, chunked in three blocks, stream in three blocks."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 4, 130, np.uint32)
    writer = ArchiveWriter(HEADER, 3)
    writer.add_chunked(Chunked(np.zeros(130, np.uint32), np.empty(0, np.uint32)), 4160)
    writer.add_chunked(Chunked(sizes, rng.integers(0, 2**32, int(sizes.sum()), np.uint32)), 4160)
    writer.add_stream(rng.integers(0, 256, 4160, np.uint8))
    return bytes(writer.finish())


def raw() -> bytes:
    x = np.random.default_rng(0).normal(size=(20, 21)).astype(np.float32)
    return bytes(write_raw(dataclasses.replace(HEADER, shape=x.shape), x))


def read_everything(data: bytes | bytearray) -> None:
    """Read whatever a pipeline could ask for; return the elements and words that were made of it."""
    archive = Archive.open(data)
    archive.summary()
    archive.verify_all()
    for number, segment in enumerate(archive.segments):
        if segment.kind == "stream":
            size = segment.at.payload // segment.at.elements
            archive.stream(number, f"uint{8 * size}").verify()
        else:
            view = archive.chunked(number)
            view.verify()
            assert int(view.offsets[-1]) == len(view.words)
            assert view.chunks <= len(data)
    assert archive.header.count <= len(data) * 65536


def describe(index: int, **changes: int) -> Callable[[dict[str, Any]], None]:
    """Return an edit of one descriptor."""

    def edit(fields: dict[str, Any]) -> None:
        descriptors = unpack_descriptors(fields["g"])
        descriptors[index] = descriptors[index]._replace(**changes)
        fields["g"] = b"".join(d.pack() for d in descriptors)

    return edit


def segment_of(data: bytes, index: int) -> Descriptor:
    return Archive.open(data).segments[index].at


@pytest.fixture(params=[coded, raw])
def sound(request: pytest.FixtureRequest) -> bytes:
    data: bytes = request.param()
    read_everything(data)
    return data


def test_every_truncation_is_refused(sound: bytes) -> None:
    for n in range(len(sound)):
        with pytest.raises(ArchiveError):
            Archive.open(sound[:n])


def test_truncations_that_state_their_length_are_refused(sound: bytes) -> None:
    header_end = 48 + int.from_bytes(sound[32:36], "little")
    for n in range(48, len(sound)):
        cut = bytearray(sound[:n])
        struct.pack_into("<QI", cut, 24, n, min(header_end, n) - 48)
        with pytest.raises(ArchiveError):
            read_everything(reseal(cut))


def test_bytes_after_the_end_are_refused(sound: bytes) -> None:
    with pytest.raises(ArchiveError, match=f"1 bytes follow the end of the archive, which states {len(sound)}"):
        Archive.open(sound + b"\0")


def test_a_message_says_what_is_missing(sound: bytes) -> None:
    with pytest.raises(ArchiveError, match=f"states {len(sound)} bytes and {len(sound) - 5} are there"):
        Archive.open(sound[:-5])
    with pytest.raises(ArchiveError, match="truncated: 0 bytes"):
        Archive.open(b"")
    with pytest.raises(ArchiveError, match="not a briquette archive: it starts with 93 4e"):
        Archive.open(b"\x93NUMPY\x01\x00" + bytes(100))


def test_every_flipped_byte_is_found(sound: bytes) -> None:
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(ArchiveError):
            read_everything(damaged)


@pytest.mark.parametrize("seed", range(4))
def test_mutations_with_resealed_checksums_never_do_worse_than_an_archive_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    originals = [coded(), raw()]
    survived = 0
    for k in range(1500):
        damaged = bytearray(originals[k % 2])
        # most of the damage where it matters: prologue, header, tables
        limit = len(damaged) if k % 5 == 0 else min(len(damaged), 1600)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(0, limit))
            width = int(rng.choice([1, 1, 1, 4, 8]))
            damaged[at : at + width] = rng.integers(0, 256, len(damaged[at : at + width]), np.uint8).tobytes()
        try:
            read_everything(reseal(damaged))
            survived += 1
        except ArchiveError:
            pass
    assert survived > 100  # resealing reaches past the checksums


def test_mutated_header_fields_never_do_worse_than_an_archive_error() -> None:
    rng = np.random.default_rng(7)
    extreme: list[Any] = [
        0,
        1,
        -1,
        2**31,
        2**60,
        2**63,
        2**64 - 1,
        None,
        True,
        0.5,
        float("nan"),
        "",
        "float64",
        b"",
        [],
        {},
        [[]],
        ["", ""],
    ]

    def mutate(value: Any) -> Any:
        if isinstance(value, dict) and value and rng.random() < 0.8:
            key = rng.choice(list(value))
            return {**value, key: mutate(value[key])}
        if isinstance(value, list) and value and rng.random() < 0.8:
            i = int(rng.integers(0, len(value)))
            return [*value[:i], mutate(value[i]), *value[i + 1 :]]
        return extreme[int(rng.integers(0, len(extreme)))]

    data, refused = [coded(), raw()], 0
    for k in range(3000):

        def edit(fields: dict[str, Any]) -> None:
            fields.update(mutate(dict(fields)) or {}) if rng.random() < 0.9 else fields.pop(
                str(rng.choice(list(fields.keys() - {"g"})))
            )

        try:
            hostile = edit_header(data[k % 2], edit)
        except (TypeError, ValueError):  # the mutation left no map to write
            continue
        try:
            read_everything(hostile)
        except ArchiveError:
            refused += 1
    assert refused > 1000


def test_reseal_leaves_a_sound_archive_alone_and_heals_checksums_only(sound: bytes) -> None:
    assert reseal(sound) == sound
    last = segment_of(sound, -1)
    damaged = bytearray(sound)
    damaged[last.payload_at] ^= 1
    with pytest.raises(ArchiveError, match="block 0 of"):
        read_everything(damaged)
    read_everything(reseal(damaged))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda f: f.update(s=[2**60]), f"segment 0 is empty, yet .* the array has {2**60} elements"),
        (lambda f: f.update(s=[2**31, 2**31]), "2\\*\\*63"),
        (lambda f: f.update(s=[1] * 65), "65 dimensions"),
        (lambda f: f.update(s=[-1]), "no count"),
        (lambda f: f.update(s=[True]), "no count"),
        (lambda f: f.update(c=0), "chunk of 0 elements"),
        (lambda f: f.update(c=65537), "chunk of 65537 elements"),
        (lambda f: f.update(c=64), "cannot hold 4160 elements in chunks of 64"),
        (lambda f: f.update(d="object"), "dtype 'object'"),
        (lambda f: f.update(o="|"), "byte order"),
        (lambda f: f.update(b=["abs", -1.0]), "-1.0"),
        (lambda f: f.update(b=["noa", 1.0]), "not \\[mode, float\\]"),
        (lambda f: f.update(p=[]), "no stages"),
        (lambda f: f["p"][1].__setitem__(0, "coder"), "must be null"),
        (lambda f: f["p"][1].__setitem__(0, "first"), "not unique"),
        (lambda f: f["p"][1].__setitem__(1, "coder"), "one has no name"),
        (lambda f: f["p"][1].__setitem__(1, ":coder"), "not named pack:stage"),
        (lambda f: f["p"][1].__setitem__(2, True), "stage 1 of the header"),
        (lambda f: f["p"][1].__setitem__(0, "a\nb"), "unprintable"),
        (lambda f: f["p"][1].__setitem__(3, "9" * 256), "256 characters of at most 255"),
        (lambda f: f.update(w="\x1b[2J"), "unprintable"),
        (lambda f: f["p"].extend([f"n{i}", *f["p"][1][1:]] for i in range(63)), "65 stages, of at most 64"),
        (lambda f: f["p"][1].__setitem__(4, {"x": [1]}), "not a map of names to scalars"),
        (lambda f: f.update(e=[["", "in", "nobody", "in"]]), "unknown node"),
        (lambda f: f.update(e=[["", "in"]]), "edge 0"),
        (lambda f: f.update(t={"nobody": {"x": 1}}), "nobody"),
        (lambda f: f.update(t={"first": {}}), "without values"),
        (lambda f: f.update(x=1), "unknown fields"),
        (lambda f: f.pop("b"), "lacks field 'b'"),
        (lambda f: f.pop("w"), "'w' is missing"),
        (lambda f: f.pop("p"), "against its feature flag"),
        (lambda f: f.update(g=f["g"][:-1]), "multiple of 40"),
        (lambda f: f.update(g=b""), "0 bytes of segment descriptors"),
        (describe(1, offset=704 + 64), "segment 1 starts at byte"),
        (describe(2, offset=512), "segment 2 starts at byte 512"),
        (describe(1, payload=2**62), "beyond the archive"),
        (describe(2, elements=2**64 - 1), "cannot hold"),
        (describe(1, elements=2**60, table=4 * 2**55 + 16 * 2**49), "beyond the archive"),
        (describe(1, table=0), "cannot hold"),
        (describe(1, payload=6), "cannot hold"),
        (describe(0, elements=2**60), "segment 0 is empty, yet"),
        (describe(0, offset=64), "segment 0 is empty, yet"),
        (describe(2, payload=2 * 4160), "beyond the archive"),
        (describe(2, payload=0, table=0, checksum=0, offset=0), "its segments end at byte"),
    ],
)
def test_hostile_headers(edit: Callable[[dict[str, Any]], None], words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        Archive.open(edit_header(coded(), edit))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda f: f.update(s=[421]), "claims 421 elements; the tables speak of 420"),
        (lambda f: f.update(s=[2**60]), f"claims {2**60} elements"),
        (lambda f: f.update(s=[419]), "not in one segment"),
        (lambda f: f.update(d="float64"), "not in one segment"),
        (lambda f: f.update(c=4096), "not 8192"),
        (lambda f: f.update(t={"first": {"x": 1}}), "raw data have"),
        (lambda f: f.update(e=[["a", "out", "b", "in"]]), "raw data have"),
        (lambda f: f.update(e=[]), "lists no edges"),
        (lambda f: f.update(p=[]), "against its feature flag"),
        (lambda f: f.update(g=f["g"] + bytes(40)), "not in one segment"),
    ],
)
def test_hostile_raw_headers(edit: Callable[[dict[str, Any]], None], words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        Archive.open(edit_header(raw(), edit))


@pytest.mark.parametrize("header", [cbor.dumps([1]), cbor.dumps(None), cbor.dumps({}), b"", b"\xff"])
def test_a_header_that_is_no_map_of_fields(header: bytes) -> None:
    data = bytearray(coded()[:48]) + header
    struct.pack_into("<QI", data, 24, len(data), len(header))
    with pytest.raises(ArchiveError):
        Archive.open(reseal(data))


@pytest.mark.parametrize(
    ("at", "fmt", "value", "error", "words"),
    [
        (8, "<H", 2, ArchiveVersionError, "format version 2.0; this briquette reads version 1"),
        (8, "<H", 0, ArchiveVersionError, "format version 0.0"),
        (12, "<H", 1, ArchiveVersionError, "needs a reader of format 1.1"),
        (14, "<H", 1, ArchiveError, "contradicts itself"),
        (36, "<I", 9, ArchiveError, "contradicts itself"),
        (16, "<Q", 0x8000000000000022, ArchiveVersionError, "bits 1, 5, 63"),
        (16, "<Q", 1, ArchiveError, "against its feature flag"),
        (24, "<Q", 2**63, ArchiveError, "truncated"),
        (24, "<Q", 0, ArchiveError, "bytes follow the end"),
        (32, "<I", 2**32 - 1, ArchiveError, "header of 4294967295 bytes does not fit"),
    ],
)
def test_hostile_prologues(at: int, fmt: str, value: int, error: type[ArchiveError], words: str) -> None:
    data = bytearray(coded())
    struct.pack_into(fmt, data, at, value)
    with pytest.raises(error, match=words) as caught:
        Archive.open(reseal(data))
    assert type(caught.value) is error


def test_a_damaged_version_is_damage_not_a_newer_version() -> None:
    data = bytearray(coded())
    data[12] = 1
    with pytest.raises(ArchiveError, match="header is damaged") as caught:
        Archive.open(data)
    assert type(caught.value) is ArchiveError


@pytest.mark.parametrize("gap", ["before", "within"])
def test_padding_that_is_not_zero(gap: str) -> None:
    data = bytearray(coded())
    d = segment_of(bytes(data), 1)
    data[d.offset - 1 if gap == "before" else d.payload_at - 1] = 1
    with pytest.raises(ArchiveError, match="padding from byte"):
        Archive.open(data)


def test_sizes_that_do_not_sum_to_the_payload() -> None:
    data = bytearray(coded())
    d = segment_of(bytes(data), 1)
    sizes_at = d.offset + 16 * 3
    struct.pack_into("<I", data, sizes_at + 4 * 129, 2**32 - 1)
    with pytest.raises(ArchiveError, match="segment 1: its table is damaged"):
        Archive.open(data).chunked(1)
    with pytest.raises(ArchiveError, match="segment 1, block 2: 42949672"):
        Archive.open(reseal(data)).chunked(1)


@pytest.mark.parametrize("offsets", [(1, 0, 0), (0, 2**64 - 1, 0), (0, 2**63, 2**62), (0, 0, 0), (0, 200, 100)])
def test_block_offsets_out_of_order(offsets: tuple[int, int, int]) -> None:
    data = bytearray(coded())
    struct.pack_into("<3Q", data, segment_of(bytes(data), 1).offset, *offsets)
    with pytest.raises(ArchiveError, match="segment 1"):
        Archive.open(reseal(data)).chunked(1)


def test_only_what_is_read_is_verified_and_the_block_is_named() -> None:
    data = bytearray(coded())
    view = Archive.open(bytes(data)).chunked(1)
    word = int(view.offsets[64])
    data[segment_of(bytes(data), 1).payload_at + 4 * word] ^= 1
    view = Archive.open(data).chunked(1)
    view.verify(0, 64)
    view.verify(128, 130)
    for begin, end in ((0, 65), (64, 65), (127, 130)):
        with pytest.raises(ArchiveError, match="segment 1, block 1 of 3 is damaged"):
            view.verify(begin, end)


def test_a_damaged_stream_names_the_block() -> None:
    data = bytearray(coded())
    d = segment_of(bytes(data), 2)
    data[d.payload_at + 2048] ^= 1
    view = Archive.open(data).stream(2, "uint8")
    view.verify(0, 2048)
    view.verify(4096, 4160)
    with pytest.raises(ArchiveError, match="segment 2, block 1 of 3 is damaged"):
        view.verify(2047, 2049)


def test_nothing_large_is_allocated_for_a_hostile_archive() -> None:
    edits: list[Callable[[dict[str, Any]], None]] = [
        lambda f: f.update(s=[2**60]),
        lambda f: f.update(s=[2**40], g=f["g"][:40] + describe_all(f["g"][40:], 2**40)),
        lambda f: f.update(s=[2**60], g=describe_all(f["g"], 2**60)),
        describe(1, elements=2**60, table=4 * 2**55 + 16 * 2**49),
        describe(2, elements=2**50, payload=2**50, table=8 * 2**39),
    ]
    hostile = [edit_header(coded(), edit) for edit in edits]
    tracemalloc.start()
    try:
        for data in hostile:
            with pytest.raises(ArchiveError):
                read_everything(data)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def describe_all(packed: bytes, elements: int) -> bytes:
    return b"".join(d._replace(elements=elements).pack() for d in unpack_descriptors(packed))


def test_the_elements_of_an_archive_are_bounded_by_its_tables() -> None:
    """The most a table of n entries can claim is n full chunks of the largest size."""
    h = Header("0.1.0", "float32", "<", (130 * 65536,), 65536, None, STAGES, None, {})
    writer = ArchiveWriter(h, 1)
    writer.add_chunked(Chunked(np.zeros(130, np.uint32), np.empty(0, np.uint32)), h.count)
    data = bytes(writer.finish())
    assert Archive.open(data).chunked(0).chunks == 130

    def one_more(fields: dict[str, Any]) -> None:
        fields["s"] = [130 * 65536 + 1]
        fields["g"] = describe_all(fields["g"], 130 * 65536 + 1)

    with pytest.raises(ArchiveError, match="cannot hold 8519681 elements"):
        Archive.open(edit_header(data, one_more))

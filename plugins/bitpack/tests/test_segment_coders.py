"""The segment coders against slow references written from docs/format.md, and against damage."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType
from briquette.stage import Scope
from briquette_bitpack.bitplane import AdaptiveBitplane
from briquette_bitpack.outlier import OutlierCoder
from briquette_bitpack.plainrate import PlainRate

CODE_TYPES = ["int16", "uint16", "int32", "uint32", "int64", "uint64"]
CODERS = [PlainRate, AdaptiveBitplane, OutlierCoder]
Coder = PlainRate | AdaptiveBitplane | OutlierCoder


def scope(stage: Coder, dtype: str, count: int, chunk: int) -> Scope:
    types = {"in": PortType(dtype)}
    return Scope({}, {**types, **stage.output_types(types)}, count, chunk)


def encode(stage: Coder, codes: np.ndarray, chunk: int) -> Chunked:
    value = stage.forward({"in": codes}, scope(stage, codes.dtype.name, codes.size, chunk))["out"]
    assert isinstance(value, Chunked)
    return value


def decode(stage: Coder, value: Chunked, dtype: str, count: int, chunk: int) -> np.ndarray:
    return stage.inverse({"out": value}, scope(stage, dtype, count, chunk))["in"]


def plain_rate_segment(codes: list[int], bits: int, signed: bool) -> tuple[int, bytes]:
    folded = [((c << 1) ^ (c >> (bits - 1))) % 2**bits for c in codes] if signed else codes
    width = max(v.bit_length() for v in folded)
    number = 0
    for i, v in enumerate(folded):
        number |= v << (i * width)
    return width, number.to_bytes(len(codes) * width // 8, "little")


def bitplane_segment(codes: list[int], bits: int, signed: bool) -> tuple[int, bytes]:
    r = max(abs(c).bit_length() for c in codes)
    if not r:
        return 0, b""
    planes = [[c < 0 for c in codes]] if signed else []
    planes += [[abs(c) >> p & 1 for c in codes] for p in range(r)]
    return r, b"".join(sum(int(b) << i for i, b in enumerate(plane)).to_bytes(len(codes) // 8, "little") for plane in planes)


def outlier_segment(codes: list[int], bits: int, signed: bool) -> tuple[int, bytes]:
    """The shorter of the plain form and every way to keep up to 32 high bits of the first code aside."""
    plain = plain_rate_segment(codes, bits, signed)
    folded = [((c << 1) ^ (c >> (bits - 1))) % 2**bits for c in codes] if signed else codes
    best = plain
    for width in range(bits - 1):
        if max([0, *folded[1:]]) >> width or folded[0] >> width >= 2**32:
            continue
        number = sum((v % 2**width) << (i * width) for i, v in enumerate(folded))
        words = (folded[0] >> width).to_bytes(4, "little") + number.to_bytes(len(codes) * width // 8, "little")
        if len(words) < len(best[1]):
            best = bits + 1 + width, words
    return best


SEGMENTS = {PlainRate: plain_rate_segment, AdaptiveBitplane: bitplane_segment, OutlierCoder: outlier_segment}


def reference(stage: Coder, codes: np.ndarray, chunk: int) -> list[bytes]:
    """Return each chunk's bytes, straight from the format page."""
    segment = SEGMENTS[type(stage)]
    bits, signed = 8 * codes.itemsize, codes.dtype.kind == "i"
    out = []
    for a in range(0, codes.size, chunk):
        part = codes[a : a + chunk].tolist()
        part += [0] * (-len(part) % stage.segment)
        coded = [segment(part[s : s + stage.segment], bits, signed) for s in range(0, len(part), stage.segment)]
        meta = bytes(m for m, _ in coded)
        out.append(meta + bytes(-len(meta) % 4) + b"".join(b for _, b in coded))
    return out


def check(stage: Coder, codes: np.ndarray, chunk: int) -> Chunked:
    value = encode(stage, codes, chunk)
    expected = reference(stage, codes, chunk)
    assert value.sizes.dtype == value.words.dtype == np.uint32
    assert value.sizes.tolist() == [len(e) // 4 for e in expected]
    assert value.words.tobytes() == b"".join(expected)
    back = decode(stage, value, codes.dtype.name, codes.size, chunk)
    assert back.dtype == codes.dtype
    assert back.flags.writeable
    np.testing.assert_array_equal(back, codes)
    return value


def mixed(dtype: str, n: int, seed: int) -> np.ndarray:
    """Return codes whose magnitude changes from one run of 16 elements to the next, extremes included."""
    rng = np.random.default_rng(seed)
    bits = 8 * np.dtype(dtype).itemsize
    raw = rng.integers(0, 2**64, n, dtype=np.uint64, endpoint=False) if n else np.empty(0, np.uint64)
    keep = np.repeat(rng.integers(0, bits + 1, n // 16 + 1), 16)[:n].astype(np.uint64)
    small = np.where(keep == 0, np.uint64(0), raw >> np.minimum(np.uint64(64) - keep, np.uint64(63)))
    codes = small.astype(dtype)
    return np.negative(codes, where=rng.random(n) < 0.5, out=codes.copy()) if np.dtype(dtype).kind == "i" else codes


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("coder", CODERS)
def test_matches_the_reference_for_every_residue(coder: type[Coder], dtype: str) -> None:
    for n in [*range(71), 127, 128, 129, 255, 256, 257, 640]:
        check(coder(), mixed(dtype, n, n), 128)


@pytest.mark.parametrize("segment", [32, 64, 96, 256, 1024])
@pytest.mark.parametrize("coder", CODERS)
def test_matches_the_reference_for_every_segment(coder: type[Coder], segment: int) -> None:
    chunk = 3 * segment
    for dtype in ("int16", "int32", "uint64"):
        for n in (1, segment - 1, segment, segment + 1, chunk - 1, chunk, chunk + 1, 2 * chunk + segment + 5):
            check(coder(segment=segment), mixed(dtype, n, n), chunk)


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("coder", CODERS)
def test_every_width_alone_and_together(coder: type[Coder], dtype: str) -> None:
    rng = np.random.default_rng(5)
    bits, signed = 8 * np.dtype(dtype).itemsize, np.dtype(dtype).kind == "i"
    whole = []
    for width in range(bits + 1):
        top = 2 ** max(0, width - signed)
        values = [int(v) % top for v in rng.integers(0, 2**63, 32)]
        values[7] = top - 1
        if signed and width:
            values[3] = -top
            values[20:] = [-v for v in values[20:]]
        segment = np.array(values, dtype)
        meta = int(check(coder(), segment, 32).words[0])
        assert meta == width
        whole.append(segment)
    rng.shuffle(whole)
    check(coder(), np.concatenate(whole), 32 * 5)


@pytest.mark.parametrize("segment", [32, 64, 96, 1024])
@pytest.mark.parametrize("dtype", CODE_TYPES)
def test_the_first_code_of_a_segment_is_kept_aside_where_that_is_shorter(dtype: str, segment: int) -> None:
    """Every length of the first code with every width of the others: the reference tries all ways there are."""
    bits, signed, rng = 8 * np.dtype(dtype).itemsize, np.dtype(dtype).kind == "i", np.random.default_rng(segment)
    stage, aside = OutlierCoder(segment=segment), 0
    step = 1 if segment == 32 else 5
    for others in range(0, bits + 1, step):
        rows = []
        for first in range(0, bits + 1, step):
            folded = (
                rng.integers(0, 2**64, segment, dtype=np.uint64) >> np.uint64(min(64 - others, 63))
                if others
                else np.zeros(segment)
            )
            row = folded.astype(np.uint64)
            row[0] = 2**first - 1
            rows.append(row.astype(f"u{bits // 8}"))
        values = np.concatenate(rows)
        codes = ((values >> 1) ^ (np.zeros_like(values) - (values & 1))).view(dtype) if signed else values.astype(dtype)
        metas = check(stage, codes, segment).words
        aside += int((metas & 0xFF > bits).any())
    assert aside > 2


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
@pytest.mark.parametrize("coder", CODERS)
def test_most_negative_code(coder: type[Coder], dtype: str) -> None:
    info = np.iinfo(dtype)
    check(coder(), np.full(33, info.min, dtype), 64)
    value = check(coder(), np.array([info.min, info.max, -1, 0, 1] * 9, dtype), 64)
    assert int(value.words[0]) & 0xFF == info.bits


@pytest.mark.parametrize("coder", CODERS)
def test_widths_that_float64_would_round_up(coder: type[Coder]) -> None:
    for value in (2**53 - 1, 2**54 - 1, 2**62 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**32 - 1, 2**32):
        coded = check(coder(), np.array([0, value], np.uint64), 32)
        assert int(coded.words[0]) & 0xFF == value.bit_length()


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("coder", CODERS)
def test_worst_case_is_the_declared_one(coder: type[Coder], dtype: str) -> None:
    stage = coder(segment=64)
    types = scope(stage, dtype, 0, 640).types
    info = np.iinfo(dtype)
    value = encode(stage, np.full(640, info.min or info.max, dtype), 640)
    assert int(value.sizes[0]) == stage.max_chunk_words("out", types, 640)


@pytest.mark.parametrize("coder", CODERS)
def test_pieces_join_to_the_whole(coder: type[Coder]) -> None:
    codes = mixed("int32", 5 * 256 + 77, 9)
    parts = [encode(coder(), codes[a : a + 512], 256) for a in range(0, codes.size, 512)]
    joined, whole = Chunked.concatenate(parts), encode(coder(), codes, 256)
    assert joined.sizes.tolist() == whole.sizes.tolist()
    assert joined.words.tobytes() == whole.words.tobytes()


@pytest.mark.parametrize("coder", CODERS)
def test_zeros_take_their_bytes_only(coder: type[Coder]) -> None:
    value = check(coder(), np.zeros(8192 + 33, np.int32), 8192)
    assert value.sizes.tolist() == [64, 1]
    assert not value.words.any()


@pytest.mark.parametrize("coder", CODERS)
def test_impossible_payloads_are_refused(coder: type[Coder]) -> None:
    stage = coder()
    good = encode(stage, mixed("int32", 200, 1), 128)

    def refused(sizes: list[int], words: np.ndarray, message: str) -> None:
        with pytest.raises(ArchiveError, match=message):
            decode(stage, Chunked(np.array(sizes, np.uint32), words), "int32", 200, 128)

    sizes = good.sizes.tolist()
    refused(sizes[:1], good.words, "1 chunks")
    refused([sizes[0] + 1, sizes[1]], good.words, "words")
    refused([0, sum(sizes)], good.words, "fewer than")
    refused([0xFFFFFFFF, 0xFFFFFFFF], good.words, "words")
    refused([sizes[0] - 1, sizes[1] + 1], good.words, "padding|but it has|bits")
    wide = good.words.copy()
    wide[0] = 33 if coder is not OutlierCoder else 64
    refused(sizes, wide, f"{wide[0]} bits")
    other = good.words.copy()
    other[0] ^= 1
    refused(sizes, other, "chunk 0 need")
    dirty = good.words.copy()
    dirty[sizes[0]] |= 1 << 24  # the last chunk has three segments
    refused(sizes, dirty, "padding")
    with pytest.raises(ArchiveError, match="stream"):
        stage.inverse({"out": good.words}, scope(stage, "int32", 200, 128))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_is_an_error_or_codes(data: st.DataObject) -> None:
    stage = data.draw(st.sampled_from([coder(segment=s) for coder in CODERS for s in (32, 64)]))
    dtype = data.draw(st.sampled_from(CODE_TYPES))
    n = 300
    good = encode(stage, mixed(dtype, n, data.draw(st.integers(0, 9))), 128)
    sizes, words = good.sizes.copy(), good.words.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        target = words if data.draw(st.integers(0, 3)) else sizes
        at = data.draw(st.integers(0, target.size - 1))
        flipped = int(target[at]) ^ 1 << data.draw(st.integers(0, 31))
        target[at] = data.draw(st.one_of(st.just(flipped), st.integers(0, 2**32 - 1)))
    words = words[: data.draw(st.integers(0, words.size))] if data.draw(st.integers(0, 4)) == 0 else words
    try:
        back = decode(stage, Chunked(sizes, words), dtype, n, 128)
    except ArchiveError:
        return
    assert back.shape == (n,)
    assert back.dtype == np.dtype(dtype)


@pytest.mark.parametrize("segment", [0, 16, 31, 33, 48, 1056, -32, 32.0, "32", True, None])
@pytest.mark.parametrize("coder", CODERS)
def test_bad_segments_are_refused_by_value(coder: type[Coder], segment: object) -> None:
    with pytest.raises(PipelineError, match=f"segment = {segment!r}"):
        coder(segment=segment)


@pytest.mark.parametrize("given", [PortType("float64"), PortType("uint8"), PortType("int32", "chunked")])
@pytest.mark.parametrize("coder", CODERS)
def test_what_is_no_code_is_refused(coder: type[Coder], given: PortType) -> None:
    with pytest.raises(PipelineError, match=coder.name):
        coder().output_types({"in": given})


@pytest.mark.parametrize("coder", CODERS)
def test_a_chunk_that_cuts_segments_is_refused(coder: type[Coder]) -> None:
    with pytest.raises(PipelineError, match="100"):
        encode(coder(), np.zeros(200, np.int32), 100)


@pytest.mark.parametrize("coder", CODERS)
def test_declaration_and_value_semantics(coder: type[Coder]) -> None:
    stage = coder(segment=96)
    assert (stage.fusion_spec().access, stage.fusion_spec().span) == (FusionAccess.SEGMENT_CODEC, 96)
    assert stage.fused_op().qualified == f"::briquette_bitpack::{coder.__name__}"
    assert stage.output_types({"in": PortType("uint16")}) == {"out": PortType("uint16", "chunked")}
    assert pickle.loads(pickle.dumps(stage)) == stage == coder.from_parameters(stage.parameters())
    assert hash(stage) == hash(coder(96))
    assert stage != coder()

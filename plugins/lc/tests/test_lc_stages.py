"""The stages against slow references written from docs/format.md, their parameters, and their pipelines on every target."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lc_data import ELIMINATIONS, KINDS, PACKINGS, PLANES, coders, made

import briquette as bq
from briquette.declare import FusionAccess
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType
from briquette.stage import Scope
from briquette_lc.adaptive import AdaptiveRepetitionElimination, AdaptiveZeroElimination
from briquette_lc.clog import Clog, HybridClog
from briquette_lc.elimination import RepetitionElimination, ZeroElimination
from briquette_lc.tuples import TupleOrder

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
LOSSLESS = "lossless"


def bits_of(values: list[int], width: int) -> bytes:
    """Values one after another from the least significant bit, padded to whole 32-bit words."""
    number = sum(v << (i * width) for i, v in enumerate(values))
    return number.to_bytes(-(-len(values) * width // 32) * 4, "little")


def differing(values: list[int] | bytes) -> list[bool]:
    return [b != a for a, b in zip([0, *values], values, strict=False)]


def bitmap(flags: list[bool]) -> bytes:
    return sum(int(f) << i for i, f in enumerate(flags)).to_bytes(-(-len(flags) // 8), "little")


def coded_bitmap(flags: list[bool], levels: int | str, lag: int = 0) -> bytes:
    forms, level, kept = [], bitmap(flags), b""
    for depth in range(5):
        forms.append(level + kept)
        if depth == 0 and lag:
            level = bytes(b ^ a for a, b in zip(bytes(lag) + level, level, strict=False))
        changed = [b != 0 for b in level] if depth == 0 and lag else differing(level)
        level, kept = bitmap(changed), bytes(b for b, c in zip(level, changed, strict=True) if c) + kept
    if isinstance(levels, int):
        return forms[levels]
    depth = min(range(5), key=lambda d: (len(forms[d]), d))
    return bytes([depth]) + forms[depth]


def aligned(data: bytes, unit: int) -> bytes:
    return data + bytes(-len(data) % unit)


def reference(stage: Any, data: bytes) -> bytes | None:
    """Return the coded form of a chunk, None where the page says it is stored as it is before any size is compared."""
    w, bits = stage.word, 8 * stage.word
    n = len(data) // w
    words = [int.from_bytes(data[i * w : (i + 1) * w], "little") for i in range(n)]
    rest = data[n * w :]
    if isinstance(stage, (ZeroElimination, RepetitionElimination)):
        flags = differing(words) if isinstance(stage, RepetitionElimination) else [x != 0 for x in words]
        kept = b"".join(x.to_bytes(w, "little") for x, f in zip(words, flags, strict=True) if f)
        lag = stage.chunk_bytes // 8 // w // stage.planes if stage.planes else 0
        return aligned(coded_bitmap(flags, stage.levels, lag), w) + kept + rest
    if isinstance(stage, (AdaptiveZeroElimination, AdaptiveRepetitionElimination)):
        before = [0, *words] if isinstance(stage, AdaptiveRepetitionElimination) else [0] * n
        marks = [x ^ b for x, b in zip(words, before, strict=False)]
        costs = [n * (bits - k) + k * sum(m >> (bits - k) != 0 for m in marks) for k in range(bits + 1)]
        k = costs.index(min(costs))
        if k == 0:
            return None
        flags = [m >> (bits - k) != 0 for m in marks]
        head = aligned(bytes([k]) + coded_bitmap(flags, stage.levels), 4)
        top = bits_of([x >> (bits - k) for x, f in zip(words, flags, strict=True) if f], k)
        return head + top + bits_of([x % 2 ** (bits - k) for x in words], bits - k) + rest
    head, body = b"", b""
    for s in range(32):
        part = words[s * n // 32 : (s + 1) * n // 32]
        width, flag = max([x.bit_length() for x in part], default=0), 0
        folded = [(x << 1) % 2**bits ^ (2**bits - 1) * (x >> (bits - 1)) for x in part]
        if isinstance(stage, HybridClog) and max([x.bit_length() for x in folded], default=0) < width:
            part, width, flag = folded, max(x.bit_length() for x in folded), 128
        head, body = head + bytes([width | flag]), body + bits_of(part, width)
    return head + body + rest


@pytest.mark.parametrize("stage", coders(4096), ids=lambda s: "-".join(map(str, s.parameters().values())) + s.name)
def test_bytes_are_those_of_the_format_page(stage: Any) -> None:
    for i, size in enumerate((0, 1, 7, 8, 9, 64, 100, 263, 600)):
        data = made(KINDS[(i + stage.word) % len(KINDS)], size, i, stage.word)
        expected = reference(stage, data.tobytes())
        got = stage.encode(data).tobytes()
        assert got == (data.tobytes() if expected is None else expected), size


def scope(stage: Any, dtype: str, count: int) -> Scope:
    types = {"in": PortType(dtype)}
    return Scope({}, {**types, **stage.output_types(types)}, count, stage.chunk_bytes // np.dtype(dtype).itemsize)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coder", [*ELIMINATIONS, *PACKINGS])
def test_streams_of_every_type_and_length(coder: type[Any], dtype: str) -> None:
    stage, item = coder(chunk_bytes=4096), np.dtype(dtype).itemsize
    edges = [4096, 4096 + item, 8192 - item, 9000 // item * item]
    for size in [*range(0, 301, item), *edges]:
        stream = made(KINDS[size % 7], size, 3, item).view(dtype)
        value = stage.forward({"in": stream}, scope(stage, dtype, stream.size))["out"]
        assert isinstance(value, Chunked)
        plain = [-(-min(4096, size - a) // 4) for a in range(0, size, 4096)]
        assert all(s <= p for s, p in zip(value.sizes.tolist(), plain, strict=True))
        back = stage.inverse({"out": value}, scope(stage, dtype, stream.size))["in"]
        assert back.dtype == stream.dtype
        assert back.flags.writeable
        assert back.tobytes() == stream.tobytes()


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    stream = made("random", 4096 + 10, 1).view(np.uint8)
    for stage in coders(4096):
        value = stage.forward({"in": stream}, scope(stage, "uint8", stream.size))["out"]
        assert value.sizes.tolist() == [1024, 3]
        assert value.words.tobytes() == stream.tobytes() + bytes(2)


def test_payloads_of_the_wrong_size_are_refused() -> None:
    stage = ZeroElimination(chunk_bytes=4096)
    stream = made("sparse", 6002, 1).view(np.int16)
    where = scope(stage, "int16", stream.size)
    value = stage.forward({"in": stream}, where)["out"]
    first, second = value.sizes.tolist()

    def refused(sizes: list[int], words: np.ndarray, message: str) -> None:
        with pytest.raises(ArchiveError, match=message):
            stage.inverse({"out": Chunked(np.array(sizes, np.uint32), words)}, where)

    refused([first], value.words, "1 chunks, not the 2")
    refused([first + 1, second], value.words, "do not add up")
    refused([first, 478], np.resize(value.words, first + 478), "no more than 1908 are used")
    dirty = np.resize(value.words, first + 477)
    dirty[-1] = 0x10000
    refused([first, 477], dirty, "padding inside a coded chunk")
    refused([first + 1, second - 1], value.words, "coded|bits")
    with pytest.raises(ArchiveError, match="not a chunked value"):
        stage.inverse({"out": value.words}, where)


@pytest.mark.parametrize("make", [ZeroElimination, AdaptiveZeroElimination, Clog, TupleOrder])
def test_parameters_are_checked_by_value(make: type[Any]) -> None:
    for bad in (0, 1000, 32768, True, "4096", 4096.0):
        with pytest.raises(PipelineError, match=f"chunk_bytes = {bad!r} of stage {make.name!r}"):
            make(chunk_bytes=bad)
    for bad in (0, 3, 16, "1", True):
        with pytest.raises(PipelineError, match=f"word = {bad!r} of stage"):
            make(word=bad)
    with pytest.raises(PipelineError, match="takes a stream"):
        make().output_types({"in": PortType("uint8", "chunked")})
    with pytest.raises(PipelineError, match="1000 elements"):
        make().forward({"in": np.zeros(5, np.int32)}, Scope({}, {"in": PortType("int32")}, 5, 1000))


def test_levels_and_tuple_sizes_are_checked_by_value() -> None:
    for bad in (-1, 5, "deep", 1.0, True, None):
        with pytest.raises(PipelineError, match=f"levels = {bad!r} of stage"):
            RepetitionElimination(levels=bad)
        with pytest.raises(PipelineError, match=f"levels = {bad!r} of stage"):
            AdaptiveRepetitionElimination(levels=bad)
    for bad in (1, 17, "2"):
        with pytest.raises(PipelineError, match=f"size = {bad!r} of stage 'tuple-order'"):
            TupleOrder(size=bad)


def test_declarations_and_value_semantics() -> None:
    names = set()
    for stage in coders(8192):
        spec = stage.fusion_spec()
        assert (spec.access, spec.span, spec.unit) == (FusionAccess.SEGMENT_CODEC, 8192, "bytes")
        assert pickle.loads(pickle.dumps(stage)) == stage == type(stage).from_parameters(stage.parameters())
        names.add(stage.fused_op().qualified)
    assert len(names) == 4 * 4 * 6 + 2 * 4 + 2 * len(PLANES)
    assert "::briquette_lc::ZeroElimination1L2" in names
    assert TupleOrder(word=8, size=3).fused_op().qualified == "::briquette_lc::TupleOrder8x3"


@pytest.mark.parametrize("word", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [2, 3, 8, 16])
def test_tuple_order_turns_and_turns_back(word: int, size: int) -> None:
    stage = TupleOrder(chunk_bytes=4096, word=word, size=size)
    stream = made("random", 2 * 4096 + 302, word).view(np.uint16)
    turned = stage.forward({"in": stream}, scope(stage, "uint16", stream.size))["out"]
    last = np.asarray(turned).view(np.uint8)[8192:]
    tuples = 302 // (word * size)
    given = stream.view(np.uint8)[8192:]
    for k in range(size):
        for t in range(tuples):
            at, by = (k * tuples + t) * word, (t * size + k) * word
            assert last[at : at + word].tobytes() == given[by : by + word].tobytes()
    assert last[tuples * word * size :].tobytes() == given[tuples * word * size :].tobytes()
    back = stage.inverse({"out": turned}, scope(stage, "uint16", stream.size))["in"]
    assert back.tobytes() == stream.tobytes()


PIPELINES: list[tuple[Any, ...]] = [
    (ZeroElimination(),),
    (ZeroElimination(chunk_bytes=4096, word=2, levels="adaptive"),),
    (RepetitionElimination(chunk_bytes=8192, word=1, levels=3),),
    (RepetitionElimination(word=8),),
    (TupleOrder(size=3), AdaptiveZeroElimination(levels=1)),
    (AdaptiveRepetitionElimination(word=2, levels="adaptive"),),
    (TupleOrder(chunk_bytes=4096, word=1, size=4), Clog(chunk_bytes=4096, word=1)),
    (HybridClog(word=8),),
]


@pytest.mark.parametrize("stages", PIPELINES, ids=lambda stages: "-".join(s.name for s in stages))
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64"])
def test_pipelines_give_the_same_archives_and_fuse(stages: tuple[Any, ...], dtype: str) -> None:
    pipe = bq.chain(*stages)
    item = np.dtype(dtype).itemsize
    for kind in ("sparse", "mixed", "runs"):
        x = made(kind, 70_000 // item * item, 5, max(item, 2)).view(dtype)
        plan = pipe.plan(x, target="host", fusion="auto")
        assert plan.forward.launches == plan.inverse.launches == 1, plan.explain()
        ways = [("numpy", "off"), ("host", "off"), ("host", "auto")]
        blobs = {bytes(pipe.compress(x, target=target, fusion=fusion)) for target, fusion in ways}
        assert len(blobs) == 1
        blob = blobs.pop()
        for target, fusion in ways:
            assert bq.decompress(blob, target=target, fusion=fusion).tobytes() == x.tobytes()


def test_lossless_preset_on_real_fields(bundled_field: Path) -> None:
    x = np.load(bundled_field)
    blobs = {bytes(bq.compress(x, pipeline=LOSSLESS, target=t, fusion=f)) for t, f in [("numpy", "off"), ("host", "auto")]}
    assert len(blobs) == 1
    blob = blobs.pop()
    assert len(blob) < x.nbytes / 1.1
    assert bq.decompress(blob, target="host").tobytes() == x.tobytes() == bq.decompress(blob, target="numpy").tobytes()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float32", "float64"])
def test_lossless_preset_takes_every_type(dtype: str) -> None:
    x = np.cumsum(np.random.default_rng(2).integers(-2, 3, 30_001)).astype(dtype)
    blob = bq.compress(x, pipeline=LOSSLESS)
    assert len(blob) < x.nbytes
    np.testing.assert_array_equal(bq.decompress(blob), x)


@pytest.mark.parametrize("preset", ["leading-bits", "packed-chunks"])
def test_lossy_presets_keep_the_bound(preset: str, bundled_field: Path) -> None:
    x = np.load(bundled_field)
    ways = [("numpy", "off"), ("host", "auto")]
    blobs = {bytes(bq.compress(x, eb=1e-3, mode="rel", pipeline=preset, target=t, fusion=f)) for t, f in ways}
    assert len(blobs) == 1
    blob = blobs.pop()
    assert len(blob) < x.nbytes
    assert bq.verify(blob, x).ok

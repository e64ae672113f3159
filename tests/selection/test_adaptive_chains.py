"""Chains with a selector, end to end: code types, residues, modes in the coder's payload and apart, parts, damage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.archive import Archive
from briquette.errors import ArchiveError, BriquetteError, PipelineError
from briquette.executor import Executable
from briquette.ports import Chunked, PortType
from briquette.record import RunRecord
from briquette.stage import Scope, Stage
from briquette_conformance.resealing import edit_header, reseal

CODE_TYPES = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
#: stages between selector and coder, and the coder
TAILS = {
    "rate": ("plain-rate",),
    "planes": ("adaptive-bitplane",),
    "zigzag-rate": ("zigzag", "plain-rate"),
    "zigzag-planes": ("zigzag", "adaptive-bitplane"),
}
CHUNK = 8192


@dataclass(frozen=True)
class Bytewise(Stage):
    """Someone else's coder, without spare bits: segments of 16 codes in 0, 1, 2, 4 or 8 bytes each, behind a word saying so."""

    name: ClassVar[str] = "bytewise"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return chunk // 16 * (1 + 4 * types["in"].numpy.itemsize)

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        codes = inputs["in"]
        segments, sizes = [], np.zeros(scope.chunks, np.uint32)
        for at, words in zip(range(0, codes.size, 16), self.cost(codes, scope).tolist(), strict=True):
            row = np.pad(codes[at : at + 16], (0, max(0, at + 16 - codes.size)))
            packed = row.astype(f"<{codes.dtype.kind}{words // 4}").view("<u4") if words else np.empty(0, "<u4")
            segments += [np.array([words], np.uint32), packed]
            sizes[at // scope.chunk] += 1 + words
        return {"out": Chunked(sizes, np.concatenate(segments).astype(np.uint32))}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        dtype, words, at, rows = scope.types["in"].numpy, outputs["out"].words, 0, []
        for _ in range(-(-scope.count // 16)):
            size = int(words[at])
            row = words[at + 1 : at + 1 + size].view(f"{dtype.kind}{size // 4}") if size else np.zeros(16)
            rows.append(row.astype(dtype))
            at += 1 + size
        return {"in": np.concatenate(rows)[: scope.count]}

    def cost(self, codes: NDArray[Any], scope: Scope) -> NDArray[np.int64]:
        rows = np.pad(codes, (0, -codes.size % 16)).reshape(-1, 16)
        size = np.zeros(rows.shape[0], np.int64)
        for width in (8, 4, 2, 1):
            if width <= codes.itemsize:
                fits = (rows.astype(f"{codes.dtype.kind}{width}") == rows).all(axis=1)
                size[fits] = 4 * width
        size[~rows.any(axis=1)] = 0
        return size

    def fusion_spec(self) -> bq.FusionSpec:
        return bq.FusionSpec(bq.FusionAccess.SEGMENT_CODEC, 16)


def stage(name: str, **params: Any) -> Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def chain(tail: str, tile: int, sides: bool = True, head: tuple[Stage, ...] = (), segment: int = 32) -> bq.Pipeline:
    *between, coder = TAILS[tail]
    return bq.chain(*head, stage("adaptive-lorenzo", tile=tile), *between, stage(coder, segment=segment), sides=sides)


def field(dtype: str, n: int, seed: int = 0) -> NDArray[Any]:
    """Codes with runs of all kinds: constants far from 0, ramps, parabolas, noise, extremes."""
    rng, info = np.random.default_rng([n, seed]), np.iinfo(dtype)
    parts: list[NDArray[Any]] = []
    while sum(p.size for p in parts) < n:
        i = np.arange(int(rng.integers(1, 400)))
        base, kind = int(rng.integers(0, 1 << 14)), int(rng.integers(0, 5))
        extremes = rng.choice(np.array([info.min, info.max, 1], dtype), i.size).view(f"u{info.bits // 8}")
        shapes = (0 * i, 3 * i, i * i // 8, rng.integers(-9, 9, i.size))
        parts.append(extremes if kind == 4 else (base + shapes[kind]).astype(f"u{info.bits // 8}"))
    return np.concatenate([p.astype(f"u{info.bits // 8}") for p in parts])[:n].view(dtype) if parts else np.empty(0, dtype)


def run_of(pipe: bq.Pipeline, dtype: str, target: str = "numpy", fusion: str = "auto") -> Executable:
    return pipe.executable(dtype, target, fusion)


def back(run: Executable, values: Mapping[Any, Any], record: RunRecord, x: NDArray[Any]) -> NDArray[Any]:
    out: NDArray[Any] = run.inverse(values, RunRecord(record.state), x.size, 1, np.full(x.size, 77, x.dtype))
    return out


def words_of(values: Mapping[Any, Any]) -> dict[Any, tuple[list[int], bytes]]:
    return {port: (value.sizes.tolist(), value.words.tobytes()) for port, value in values.items()}


# -- round trips ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", CODE_TYPES)
@pytest.mark.parametrize("tail", TAILS)
def test_every_residue_comes_back(tail: str, dtype: str) -> None:
    if "zigzag" in tail and dtype.startswith("u"):
        with pytest.raises(PipelineError, match="unsigned codes need no folding"):
            chain(tail, 64).plan(dtype, "numpy")
        return
    seen: set[int] = set()
    held, apart = run_of(chain(tail, 64), dtype), run_of(chain(tail, 64, sides=False), dtype, fusion="off")
    assert held.graph.sinks == ((TAILS[tail][-1], "out"),)
    assert apart.graph.sinks == ((TAILS[tail][-1], "out"), ("adaptive-lorenzo", "tiles"))
    every = tail == "rate" and dtype in ("int16", "int32", "int64")
    for n in range(1, 601) if every else [*range(1, 71), *range(71, 601, 17)]:
        x = field(dtype, n)
        for run in (held, apart):
            record, values = run.forward(x, None, 1)
            np.testing.assert_array_equal(back(run, values, record, x), x)
        seen |= {int(m) for m in np.unique(values["adaptive-lorenzo", "tiles"].words[0] >> np.arange(0, 2 * (n // 64), 2) & 3)}
    assert seen >= {0, 1, 2}
    assert 3 in seen or dtype.startswith("u")  # what lies below its mean is a large number there


@pytest.mark.parametrize("tile", [32, 96, 256, 1024, 65_536])
def test_every_tile_and_segment(tile: int) -> None:
    for dtype, segment in (("int16", 32), ("int32", tile if tile <= 1024 else 1024), ("int64", 32)):
        pipe = chain("rate", tile, segment=segment)
        # a tile of one segment has one spare bit for 64-bit codes, too few for four modes
        assert bool(pipe.graph.side) is (segment < tile)
        run = run_of(pipe, dtype)
        for n in (1, tile - 1, tile, tile + 1, tile + segment + 1, CHUNK + 5, 3 * max(tile, CHUNK) + tile // 2 + 1):
            x = field(dtype, n)
            record, values = run.forward(x, None, 1)
            np.testing.assert_array_equal(back(run, values, record, x), x)


def test_the_whole_and_its_pieces_are_the_same_words() -> None:
    x = field("int32", (1 << 18) + 3 * CHUNK + 777)
    for sides in (True, False):
        pipe = chain("zigzag-planes", 256, sides)
        found = [words_of(run_of(pipe, "int32", fusion=f).forward(x, None, 1)[1]) for f in ("off", "auto")]
        assert found[0] == found[1]


def test_codes_of_a_tile_cost_no_more_than_with_any_one_predictor() -> None:
    """By payload and segment of tiles, less what metadata takes."""
    x = field("int32", 20 * CHUNK)
    adaptive = run_of(chain("rate", 256), "int32").forward(x, None, 1)[1]["plain-rate", "out"]
    plain = run_of(bq.chain(stage("lorenzo-1d", region=256), "plain-rate"), "int32").forward(x, None, 1)[1]["plain-rate", "out"]
    assert adaptive.words.size < plain.words.size


def test_a_coder_without_spare_bits_leaves_the_tiles_to_the_archive() -> None:
    pipe = bq.chain(stage("adaptive-lorenzo", tile=32), Bytewise())
    assert not pipe.graph.side
    for dtype in CODE_TYPES:
        run = run_of(pipe, dtype)
        for n in [*range(1, 70), CHUNK, CHUNK + 33]:
            x = field(dtype, n)
            record, values = run.forward(x, None, 1)
            np.testing.assert_array_equal(back(run, values, record, x), x)
    pipe = bq.Pipeline()
    for part in (stage("adaptive-lorenzo"), Bytewise()):
        pipe.add(part)
    pipe.connect("adaptive-lorenzo.tiles", "bytewise.tiles")
    with pytest.raises(PipelineError, match=r"bytewise has no input 'tiles'"):
        _ = pipe.graph


# -- archives ------------------------------------------------------------------------------------------------


def series(n: int, dtype: str = "float32") -> NDArray[Any]:
    rng = np.random.default_rng(n)
    x = 100 * np.sin(np.arange(n) / 70) + 500 + np.cumsum(rng.normal(0, 0.02, n))
    x[n // 3 : n // 2] = np.round(x[n // 3 : n // 2]) * 50
    x[:: max(n // 5, 1)] = np.nan
    return x.astype(dtype)


def pipelines() -> dict[str, bq.Pipeline]:
    head = (stage("linear-quantizer"),)
    return {
        "adaptive": bq.Pipeline.from_preset("adaptive"),
        "apart": chain("rate", 256, False, head),
        "zigzag": chain("zigzag-planes", 128, True, head),
        "narrow": chain("planes", 64, True, (stage("linear-quantizer", code_type="int16"),)),
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", pipelines())
def test_parts_are_slices_of_the_whole(name: str, dtype: str) -> None:
    x = series(70 * CHUNK + 300, dtype)
    blob = pipelines()[name].compress(x, 1e-2, target="numpy")
    whole = bq.decompress(blob, target="numpy")
    assert bq.verify(blob, x, target="numpy").ok
    assert whole.dtype == x.dtype
    for a, b in (
        (0, 1),
        (CHUNK - 1, CHUNK + 1),
        (CHUNK, 3 * CHUNK),
        (64 * CHUNK - 5, 64 * CHUNK + 5),
        (x.size - 1, x.size),
        (9, 9),
    ):
        for fusion in ("off", "auto"):
            part = bq.decompress(blob, flat=slice(a, b), target="numpy", fusion=fusion)
            assert part.tobytes() == whole[a:b].tobytes()
    rows = x[: 70 * CHUNK].reshape(70, -1)
    blob = pipelines()[name].compress(rows, 1e-2, target="numpy")
    assert bq.decompress(blob, region=slice(3, 5), target="numpy").tobytes() == bq.decompress(blob, target="numpy")[3:5].tobytes()


def test_headers_stay_small_and_hold_the_edge() -> None:
    x = series(5000)
    for name, edges in (("adaptive", 1), ("apart", 0)):
        blob = bytes(pipelines()[name].compress(x, 1e-2, target="numpy"))
        header = Archive.open(blob).header
        assert len(header.edges or ()) == edges
        assert int.from_bytes(blob[32:36], "little") < 512
        assert len(Archive.open(blob).segments) == 3 - edges
    held, apart = pipelines()["adaptive"], pipelines()["apart"]
    assert held != apart
    for pipe in (held, apart, pipelines()["zigzag"]):
        assert bq.Pipeline.from_toml(pipe.to_toml()) == pipe
    assert "[[edge]]" not in held.to_toml()
    assert "[[edge]]" in apart.to_toml()


@pytest.mark.parametrize("name", pipelines())
def test_mutants_decode_or_are_refused(name: str) -> None:
    rng = np.random.default_rng(len(name))
    blob = bytes(pipelines()[name].compress(series(CHUNK + 700), 1e-2, target="numpy"))
    archive = Archive.open(blob)
    payload = [(d.at.payload_at, d.at.end) for d in archive.segments]
    outcomes = {"refused": 0, "decoded": 0}
    for _ in range(200):
        damaged = bytearray(blob)
        begin, end = payload[int(rng.integers(0, len(payload)))]
        for at in rng.integers(begin, min(end, begin + 80) if rng.random() < 0.7 else end, 2).tolist():
            damaged[at] ^= 1 << int(rng.integers(0, 8))
        if damaged == blob:
            continue
        try:
            out = bq.decompress(reseal(damaged), target="numpy", fusion=str(rng.choice(["off", "auto"])))
            outcomes["decoded"] += 1
            assert out.size == CHUNK + 700
        except ArchiveError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, outcomes


def test_edges_that_no_pipeline_has_are_refused() -> None:
    blob = bytes(pipelines()["adaptive"].compress(series(5000), 1e-2, target="numpy"))
    edge = Archive.open(blob).header.edges
    assert edge is not None

    def with_edges(edges: Any) -> bytes:
        return edit_header(blob, lambda fields: fields.update(e=edges) if edges else fields.pop("e"))

    good = ["adaptive-lorenzo", "tiles", "plain-rate", "tiles"]
    assert bq.decompress(with_edges([good]), target="numpy").size == 5000
    for edges in (
        None,  # then the tiles are a segment of their own, which is not there
        [good, good],
        [["adaptive-lorenzo", "tiles", "plain-rate", "in"]],
        [["linear-quantizer", "outliers", "plain-rate", "tiles"]],
        [["plain-rate", "out", "plain-rate", "tiles"]],
        [["adaptive-lorenzo", "out", "plain-rate", "tiles"]],
        [["adaptive-lorenzo", "tiles", "plain-rate", "tile"]],
        [["", "in", "plain-rate", "tiles"]],
    ):
        with pytest.raises(BriquetteError) as caught:
            bq.decompress(with_edges(edges), target="numpy")
        assert isinstance(caught.value, ArchiveError), edges

"""Chains with a LAYOUT: the CUDA kernels in the emulator against NumPy, parts of values that lie placed, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from emulator_kit import forget_pipelines, host_target
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess, FusionSpec
from briquette.errors import ArchiveError
from briquette.harness import GroupProgram, GroupRun, Member
from briquette.planner import chain_members
from briquette.ports import Chunked
from briquette.record import RunRecord
from briquette_warp.chain import Composition, refuse_chain
from briquette_warp.cuda_program import CudaProgram, refuse_geometry
from briquette_warp.emulated import EmulatedProgram, Emulation, HostArray
from briquette_warp.harness import WarpHarness

CHUNK = 8192
SHAPES = [(9011,), (131, 77), (128, 64), (21, 37, 19), (2, 20, 11, 17), (1,), (9, 9)]


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


TAILS: dict[str, list[bq.Stage]] = {
    "tiled": [stage("tile-order"), stage("tiled-lorenzo"), stage("plain-rate")],
    "outlier": [stage("tile-order"), stage("tiled-lorenzo"), stage("outlier", segment=64)],
    "adaptive": [stage("tile-order"), stage("adaptive-lorenzo"), stage("plain-rate")],
    "transforms": [stage("zigzag"), stage("tile-order"), stage("tiled-lorenzo"), stage("adaptive-bitplane")],
    "apart": [stage("tile-order"), stage("adaptive-lorenzo"), stage("outlier")],
}


def pipeline(tail: str) -> bq.Pipeline:
    return bq.chain(stage("linear-quantizer"), *TAILS[tail], sides=tail != "apart")


def field(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    n = math.prod(shape)
    x = (np.cumsum(np.random.default_rng(n).standard_normal(n)) / 4).astype(dtype)
    if n > 100:
        x[[3, 77, n - 1]] = np.nan
        x[n // 2 : n // 2 + 40] = np.inf
        x[n // 3 : n // 3 + n // 9] = np.nan
    return x.reshape(shape)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the host target run every group in the emulator."""
    host_target()

    def program(self: WarpHarness, chain: Any, direction: Any, target: Any, chunk: int, geometry: Any = None) -> GroupProgram:
        return EmulatedProgram(Composition(tuple(chain), chunk), direction, target)

    monkeypatch.setattr(WarpHarness, "program", program)
    forget_pipelines()  # of tests before, whose programs are none of the emulator's
    yield
    forget_pipelines()


@pytest.mark.parametrize(("tail", "dtype"), [*((t, "float32") for t in TAILS), ("tiled", "float16"), ("tiled", "float64")])
def test_whole_kernels_make_the_reference_archives(tail: str, dtype: str, emulated: None) -> None:
    pipe = pipeline(tail)
    for shape in SHAPES:
        x = field(shape, dtype)
        for mode, eb in (("abs", 0.1),):
            archive = bytes(pipe.compress(x, eb, mode, target="numpy"))
            expected = bq.decompress(archive, target="numpy")
            for fusion in ("auto", "off"):
                made = bq.compress_run(x, eb, mode, pipeline=pipe, target="host", fusion=fusion)
                assert made.archive == archive, (shape, mode, fusion)
                out = np.full_like(x, -77)
                assert bq.decompress(archive, target="host", fusion=fusion, out=out).tobytes() == expected.tobytes(), (
                    shape,
                    fusion,
                )
            assert made.raw or bq.compress_run(x, eb, mode, pipeline=pipe, target="host").plan.forward.launches == 1
            for part in (slice(0, 1), slice(shape[0] // 2, shape[0] // 2 + 3), slice(-2, None)):
                assert bq.decompress(archive, region=part, target="host").tobytes() == expected[part].tobytes(), (shape, part)


@pytest.mark.parametrize("resolves", [True, False])
@pytest.mark.parametrize("tail", ["tiled", "adaptive", "apart"])
def test_parts_of_values_that_stay_on_the_device(tail: str, resolves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a device archive is read: values cut where they lie, each port in chunks of its own; parameters made on the device."""
    if not resolves:
        monkeypatch.setattr(Composition, "resolves", property(lambda parts: False))
    device = Emulation(host_target())
    pipe, x = pipeline(tail), field((190, 157), "float32")
    run = pipe.executable("float32", "numpy")
    lengths, nodes = run.lengths, run.graph.order
    programs = {
        d: CudaProgram(Composition(tuple(chain_members(run.graph, run.plan.types, nodes, d)), CHUNK), d, device)
        for d in ("forward", "inverse")
    }
    assert programs["forward"].captures is resolves
    record, flat = RunRecord(), HostArray(x.reshape(-1).copy())
    of = lengths.stretch(x.shape)
    started = GroupRun(record, x.size, CHUNK, 1, bq.Bound(0.1), stretch=of, coded=of.laid_count)
    values = programs["forward"].forward(flat, started)
    assert record.state["tiled-lorenzo"] == {"axes": 2} if tail == "tiled" else True
    blob = bytes(pipe.compress(x, 0.1, target="numpy"))
    whole = bq.decompress(blob, target="numpy").reshape(-1)
    for first, last in ((0, 4), (0, 1), (1, 2), (2, 4), (3, 4)):
        begin, end = first * CHUNK, min(last * CHUNK, x.size)
        part = lengths.stretch(x.shape, begin, end)
        cut = {}
        for port, value in values.items():
            assert isinstance(value, Chunked)
            low, high, _ = lengths.place(port, part)
            cut[port] = value.cut(low // CHUNK, -(-high // CHUNK))
        out = HostArray(np.full(end - begin, -77, np.float32))
        back = GroupRun(record, end - begin, CHUNK, 1, out=out, stretch=part, coded=part.laid_count)
        programs["inverse"].inverse(cut, back)
        assert out.array.tobytes() == whole[begin:end].tobytes(), (first, last)


def test_damaged_values_kept_aside_are_refused(emulated: None) -> None:
    run = bq.Pipeline.from_preset("tiled").executable("float32", "host", "auto")
    x = field((131, 157), "float32")
    record, values = run.forward(x.reshape(-1), bq.Bound(1e-2), 1, shape=x.shape)
    for port in values:
        kept: Any = values[port]
        words = kept.words.copy()
        words[0] ^= np.uint32(0x11)
        damaged = {**values, port: Chunked(kept.sizes, words)}
        with pytest.raises(ArchiveError, match="damaged"):
            run.inverse(damaged, record, run.lengths.stretch(x.shape), 1, np.empty(x.size, np.float32))


def members(*stages: bq.Stage) -> list[Member]:
    graph = bq.chain(*stages).graph
    return chain_members(graph, graph.types("int32"), graph.order, "forward")


def test_what_stands_before_a_layout_sees_no_neighbours() -> None:
    tiles, zigzag, lorenzo = stage("tile-order"), stage("zigzag"), stage("lorenzo-1d")
    assert refuse_chain(members(zigzag, tiles, lorenzo, stage("plain-rate")), CHUNK) is None
    assert refuse_chain(members(lorenzo, tiles), CHUNK) == (
        "lorenzo-1d: it sees elements in another order than tile-order gives them; "
        "only ELEMENTWISE stages may stand before a LAYOUT in a group"
    )


def test_a_layout_over_a_few_elements_does_not_fit_a_block() -> None:
    (tiles,) = members(stage("tile-order"))
    short = Member("short", tiles.stage, FusionSpec(FusionAccess.LAYOUT, 16), tiles.op, tiles.types)
    assert refuse_chain([short], CHUNK) is None
    assert "short: a LAYOUT over 16 elements is too short" in str(refuse_geometry(Composition((short,), CHUNK)))
    assert refuse_geometry(Composition((tiles,), CHUNK)) is None

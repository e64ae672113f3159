"""A part costs what it holds: the chunks that are decoded, the blocks that are verified, the damage that is not met."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette._scan import installed
from briquette.archive import Archive
from briquette.errors import ArchiveError
from briquette.on_device import DeviceArchive
from briquette.ports import PortType
from briquette.stage import Scope, Stage

CHUNK = 8192
BLOCK = 64 * CHUNK
SIZE = 2 * BLOCK + 3 * CHUNK + 50  # three blocks
WAYS = (("numpy", "auto"), ("numpy", "off"), ("host", "auto"), ("host", "off"))

pytestmark = pytest.mark.usefixtures("host")


def field(n: int = SIZE) -> NDArray[np.float32]:
    x = np.cumsum(np.random.default_rng(n).standard_normal(n)).astype(np.float32)
    x[::997] = np.nan
    return x


@pytest.fixture(scope="module")
def blob() -> bytes:
    return bytes(bq.compress(field(), 1e-2))


@pytest.mark.parametrize(("target", "fusion"), WAYS)
def test_only_the_chunks_and_blocks_of_a_part_are_touched(blob: bytes, work: Any, target: str, fusion: str) -> None:
    expected = [
        (slice(0, 1), CHUNK, {0}),
        (slice(CHUNK - 1, CHUNK + 1), 2 * CHUNK, {0}),
        (slice(BLOCK - 1, BLOCK), CHUNK, {0}),
        (slice(BLOCK - 1, BLOCK + 1), 2 * CHUNK, {0, 1}),
        (slice(BLOCK + 5 * CHUNK, BLOCK + 7 * CHUNK), 2 * CHUNK, {1}),
        (slice(BLOCK - 5, 2 * BLOCK + 5), BLOCK + 2 * CHUNK, {0, 1, 2}),
        (slice(-1, None), 50, {2}),
        (slice(-51, None), CHUNK + 50, {2}),
        (slice(None), SIZE, {0, 1, 2}),
    ]
    for part, decoded, blocks in expected:
        work.clear()
        bq.decompress(blob, flat=part, target=target, fusion=fusion)
        assert work.decoded == [decoded], part
        assert work.blocks == {(segment, k) for segment in (0, 1) for k in blocks}, part
    work.clear()
    assert bq.decompress(blob, flat=slice(6, 6), target=target, fusion=fusion).size == 0
    assert (work.decoded, work.blocks) == ([], set())


def test_raw_archives_are_verified_where_they_are_read(work: Any) -> None:
    x = np.random.default_rng(3).standard_normal(BLOCK + 100)
    blob = bq.compress(x, 1e-30)
    work.clear()
    bq.decompress(blob, flat=slice(BLOCK + 1, BLOCK + 2))
    assert (work.blocks, work.decoded) == ({(0, 1)}, [])


def damaged(blob: bytes, segment: int, block: int) -> bytes:
    """Flip a bit in the middle of one block of one segment."""
    archive = Archive.open(blob)
    at = archive.segments[segment].at.payload_at
    if archive.header.raw:
        place = at + block * BLOCK * archive.header.nbytes // archive.header.count + 100
    else:
        offsets = archive.chunked(segment).offsets
        first, last = int(offsets[64 * block]), int(offsets[min(64 * block + 64, len(offsets) - 1)])
        place = at + 4 * ((first + last) // 2)
    made = bytearray(blob)
    made[place] ^= 0x10
    return bytes(made)


@pytest.mark.parametrize(("target", "fusion"), WAYS)
@pytest.mark.parametrize("segment", [0, 1])
def test_damage_elsewhere_does_not_matter(blob: bytes, segment: int, target: str, fusion: str) -> None:
    whole = bq.decompress(blob, target="numpy")
    parts = [slice(10, 20), slice(BLOCK + 3, 2 * BLOCK - 3), slice(2 * BLOCK, None)]
    for block in range(3):
        bad = damaged(blob, segment, block)
        for k, part in enumerate(parts):
            if k == block:
                with pytest.raises(ArchiveError, match=f"segment {segment}, block {k} of 3 is damaged"):
                    bq.decompress(bad, flat=part, target=target, fusion=fusion)
            else:
                found = bq.decompress(bad, flat=part, target=target, fusion=fusion)
                assert found.tobytes() == whole[part].tobytes()
        with pytest.raises(ArchiveError, match="is damaged"):
            bq.decompress(bad, target=target, fusion=fusion)


def test_damage_elsewhere_in_raw_data() -> None:
    x = np.random.default_rng(4).standard_normal(BLOCK + 100)
    bad = damaged(bytes(bq.compress(x, 1e-30)), 0, 0)
    assert bq.decompress(bad, flat=slice(BLOCK, None)).tobytes() == x[BLOCK:].tobytes()
    with pytest.raises(ArchiveError, match="block 0"):
        bq.decompress(bad, flat=slice(0, 1))


@pytest.mark.parametrize(("target", "fusion"), WAYS)
def test_damage_elsewhere_in_a_stream_of_codes(target: str, fusion: str) -> None:
    registry = discovery.registry()
    pipe = bq.chain(
        registry.stage_class("linear-quantizer").from_parameters({"code_type": "int16"}),
        registry.stage_class("lorenzo-1d").from_parameters({}),
    )
    x = (np.sin(np.arange(BLOCK + 3 * CHUNK) / 500) * 100).astype(np.float32)
    blob = bytes(pipe.compress(x, 1e-2))
    whole, archive = bq.decompress(blob, target="numpy"), Archive.open(blob)
    stream = next(s for s in archive.segments if s.kind == "stream")
    bad = bytearray(blob)
    bad[stream.at.payload_at + 1000] ^= 4
    for part in (slice(BLOCK, BLOCK + 1), slice(BLOCK + CHUNK - 1, None)):
        assert bq.decompress(bad, flat=part, target=target, fusion=fusion).tobytes() == whole[part].tobytes()
    with pytest.raises(ArchiveError, match=f"segment {stream.number}, block 0 of 2 is damaged"):
        bq.decompress(bad, flat=slice(CHUNK, CHUNK + 1), target=target, fusion=fusion)


# -- a stage that looks anywhere ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Reverse(Stage):
    """Reverses the whole stream; no role."""

    name: ClassVar[str] = "reverse"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"out": np.ascontiguousarray(inputs["in"][::-1])}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"in": np.ascontiguousarray(outputs["out"][::-1])}


@pytest.fixture
def reverse(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry that has the stage `reverse` beside what is installed."""
    module = ModuleType("acme_reverse")
    module.Reverse = Reverse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "acme_reverse", module)
    point = EntryPoint("reverse", "acme_reverse:Reverse", "briquette.stages")
    vars(point)["dist"] = SimpleNamespace(name="acme-reverse", version="1.0")
    with discovery.use(discovery.Registry.from_entry_points([*(p for pack in installed() for p in pack.points), point])):
        yield


@pytest.mark.usefixtures("reverse")
@pytest.mark.parametrize("target", ["numpy", "host"])
def test_where_a_stage_looks_anywhere_everything_is_decoded(work: Any, target: str) -> None:
    def stage(name: str) -> bq.Stage:
        return discovery.registry().stage_class(name).from_parameters({})

    pipe = bq.chain(stage("linear-quantizer"), stage("lorenzo-1d"), stage("reverse"), stage("plain-rate"))
    x = field(3 * CHUNK + 5)
    assert pipe.plan(x, target).random_access is False
    blob = bytes(pipe.compress(x, 1e-2, target=target))
    assert not bq.info(blob)["raw"]
    whole = bq.decompress(blob, target=target)
    for part in (slice(0, 9), slice(CHUNK, 2 * CHUNK), slice(-3, None)):
        work.clear()
        assert bq.decompress(blob, flat=part, target=target).tobytes() == whole[part].tobytes()
        assert work.decoded == [x.size]


# -- archives in a device's memory -------------------------------------------------------------------------


class _Array(np.ndarray):  # type: ignore[type-arg]
    def reshaped(self, shape: tuple[int, ...]) -> Any:
        return self.reshape(shape)


class _Memory:
    """Memory of a pretended device: NumPy arrays."""

    def empty(self, count: int, dtype: str, like: Any = None) -> Any:
        return np.full(count, -1, dtype).view(_Array)

    def view(self, x: Any, stream: Any = None) -> Any:
        return x.reshape(-1)

    def copy(self, array: Any, out: Any) -> None:
        assert array.size == out.size
        out.reshape(-1)[:] = array


def test_device_archives_cut_their_values(work: Any) -> None:
    """What core does for them; the kernels' part of it is in tests/gpu and in the warp harness's tests."""
    x = field(5 * CHUNK + 77).reshape(-1, 1)
    pipe = bq.Pipeline.from_preset("fast")
    run = pipe.executable("float32", "numpy")
    record, values = run.forward(x.reshape(-1), bq.Bound(1e-2), 1)
    device: Any = SimpleNamespace(
        plan=run.plan, lengths=run.lengths, inverse=run.inverse, target=SimpleNamespace(memory=_Memory())
    )
    source: Any = SimpleNamespace(flat=x.reshape(-1), shape=x.shape, dtype="float32")
    archive = DeviceArchive(pipe, source, None, record, device, values)
    whole = archive.decompress()
    assert whole.shape == x.shape
    for part in (slice(3, 9), slice(CHUNK, 3 * CHUNK), slice(-80, None), slice(4, 4), slice(None)):
        work.clear()
        found = archive.decompress(region=part)
        assert found.shape == whole[part].shape
        assert found.tobytes() == whole[part].tobytes()
        first, last = (part.indices(x.size)[0] // CHUNK, -(-part.indices(x.size)[1] // CHUNK))
        assert work.decoded == ([min(last * CHUNK, x.size) - first * CHUNK] if found.size else [])
        assert archive.decompress(flat=part).tobytes() == whole[part].tobytes()
        out = np.zeros(found.shape, np.float32)
        assert archive.decompress(out, region=part) is out
        assert out.tobytes() == found.tobytes()
    with pytest.raises(bq.BriquetteError, match=r"out= holds 3 of float32, what is decompressed 4 of float32"):
        archive.decompress(np.zeros(3, np.float32), flat=slice(0, 4))

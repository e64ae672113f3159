"""The coders' CUDA kernels in the lane emulator: the values of the NumPy reference, and damage that the flag tells of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from entropy_data import streams
from numpy.typing import NDArray

from briquette import discovery
from briquette.errors import ArchiveError
from briquette.harness import GroupRun
from briquette.ports import Chunked, PortType
from briquette.record import RunRecord
from briquette.stage import PrimeContext, Scope, Stage
from briquette_entropy.huffman import Huffman
from briquette_entropy.run_length import RunLength

emulation: Any = pytest.importorskip("briquette_warp.emulated", reason="this environment has no lane emulator")

CHUNK = 512


class Device(emulation.Emulation):  # type: ignore[misc,name-defined]
    """A target with memory of its own."""

    dialect = "cuda"
    memory = object()


@pytest.fixture(scope="module")
def device() -> Device:
    host = discovery.registry().target("host")
    reason = host.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return Device(host)


def numpy_values(stage: Stage, x: NDArray[Any]) -> tuple[RunRecord, Chunked]:
    """Return what the NumPy form makes of `x` in chunks of `CHUNK`."""
    types = {"in": PortType(x.dtype.name), **stage.output_types({"in": PortType(x.dtype.name)})}
    state = dict(stage.prime_fused_forward_state(PrimeContext(x, types, None, x.size, chunk=CHUNK)))
    value = stage.forward({"in": x}, Scope(state, types, x.size, CHUNK))["out"]
    assert isinstance(value, Chunked)
    return RunRecord({"node": state} if state else {}), value


def programs(stage: Stage, dtype: str, device: Device) -> tuple[Any, Any]:
    types = {"in": PortType(dtype), **stage.output_types({"in": PortType(dtype)})}
    made: list[Any] = []
    for direction in ("forward", "inverse"):
        kernel: Any = stage.staged_kernel(direction, device.dialect, types)  # type: ignore[arg-type]
        made.append(kernel("node", types, device, CHUNK))
    return made[0], made[1]


def array_of(value: Any) -> NDArray[Any]:
    return value if isinstance(value, np.ndarray) else value.array


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
@pytest.mark.parametrize("stage", [Huffman(), Huffman(contexts=1), RunLength()], ids=["eight", "one", "run-length"])
def test_kernels_make_the_reference_values(stage: Stage, dtype: str, device: Device) -> None:
    forward, inverse = programs(stage, dtype, device)
    for size in (1, CHUNK - 1, CHUNK + 1, 41 * CHUNK + 7):
        for name, x in streams(dtype, size):
            record, wanted = numpy_values(stage, x)
            mine = RunRecord()
            (found,) = forward.forward(emulation.HostArray(x), GroupRun(mine, size, CHUNK, 1)).values()
            assert mine.of("node") == record.of("node"), name
            assert np.array_equal(found.sizes, wanted.sizes), name
            assert np.array_equal(array_of(found.words), wanted.words), name
            for value in (wanted, found):
                out = np.empty_like(x)
                inverse.inverse({("node", "out"): value}, GroupRun(mine, size, CHUNK, 1, out=emulation.HostArray(out)))
                assert np.array_equal(out, x), name


@pytest.mark.parametrize("contexts", [1, 2, 5, 8])
def test_random_runs_and_numbers(contexts: int, device: Device, rng: np.random.Generator) -> None:
    """Runs that begin and end anywhere among the 32 elements of a warp, numbers of every width, chunks that do not shrink."""
    for dtype in ("int16", "int32", "uint64"):
        stage = Huffman(contexts=contexts)
        forward, _ = programs(stage, dtype, device)
        for _ in range(12):
            size = int(rng.integers(1, 4 * CHUNK))
            spans = rng.geometric(rng.choice([0.5, 0.1, 0.02]), size)
            some = np.repeat(rng.random(size) < rng.uniform(0.1, 0.9), spans)[:size]
            x = some * 2.0 ** rng.uniform(0, rng.choice([3, 12, 62]), size)
            x = (x * (1 if dtype[0] == "u" else rng.choice([-1, 1], size))).clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
            x = x.astype(dtype)
            record, wanted = numpy_values(stage, x)
            mine = RunRecord()
            (found,) = forward.forward(emulation.HostArray(x), GroupRun(mine, size, CHUNK, 1)).values()
            assert mine.of("node") == record.of("node")
            assert np.array_equal(found.sizes, wanted.sizes)
            assert np.array_equal(array_of(found.words), wanted.words)


@pytest.mark.parametrize("stage", [Huffman(), RunLength()], ids=["huffman", "run-length"])
def test_damage_is_refused_or_decodes_as_the_reference_does(stage: Stage, device: Device) -> None:
    _, inverse = programs(stage, "int16", device)
    x = dict(streams("int16", 3 * CHUNK + 5))["steps"]
    record, value = numpy_values(stage, x)
    types = {"in": PortType("int16"), **stage.output_types({"in": PortType("int16")})}
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(150):
        words = value.words.copy()
        words[rng.integers(words.size)] ^= np.uint32(1 << int(rng.integers(32)))
        hostile = Chunked(value.sizes, words)
        out = np.zeros_like(x)
        try:
            wanted = stage.inverse({"out": hostile}, Scope(record.of("node"), types, x.size, CHUNK))["in"]
        except ArchiveError:
            refused += 1
            with pytest.raises(ArchiveError, match="cannot have been written by node"):
                inverse.inverse({("node", "out"): hostile}, GroupRun(record, x.size, CHUNK, 1, out=emulation.HostArray(out)))
            continue
        inverse.inverse({("node", "out"): hostile}, GroupRun(record, x.size, CHUNK, 1, out=emulation.HostArray(out)))
        assert np.array_equal(out, np.asarray(wanted))
    assert 10 < refused < 150

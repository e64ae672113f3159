"""The GPU kernels of chains with a selector, whole, in the emulator: what comes out is the NumPy form's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulator_kit import host_target
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.errors import ArchiveError
from briquette.executor import Executable
from briquette.harness import Direction, GroupRun
from briquette.planner import chain_members
from briquette.ports import FLOAT_DTYPES, Chunked, numpy_dtype
from briquette.record import RunRecord
from briquette_warp.chain import Composition
from briquette_warp.cuda_program import refuse_geometry
from briquette_warp.emulated import EmulatedProgram, EmulatedSession

CHUNK = 8192


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


@dataclass(frozen=True)
class Case:
    """A chain and the type it reads; `carried`: the coder keeps the tiles."""

    label: str
    dtype: str
    stages: tuple[tuple[str, Mapping[str, Any]], ...]
    carried: bool

    @property
    def head(self) -> bool:
        return self.stages[0][0].endswith("quantizer")

    @property
    def bound(self) -> bq.Bound | None:
        """Relative, so that the extent counts, where missing values or integers change what a survey finds."""
        if not self.head:
            return None
        return bq.Bound(4e-3) if self.stages[0][0] == "linear-quantizer" else bq.Bound(1e-3, "rel")

    def run(self) -> Executable:
        stages = [stage(name, **params) for name, params in self.stages]
        pipe = bq.chain(*stages, sides=False)
        if self.carried:  # also where `chain` would leave the tiles to the archive
            pipe = bq.Pipeline()
            nodes = [pipe.add(each) for each in stages]
            for (a, first), (b, second) in itertools.pairwise(zip(nodes, stages, strict=True)):
                pipe.connect(f"{a}.{first.outputs[0]}", f"{b}.{second.inputs[0]}")
            pipe.connect("adaptive-lorenzo.tiles", f"{nodes[-1]}.tiles")
        return pipe.executable(self.dtype, "numpy")

    def __str__(self) -> str:
        return self.label


def case(label: str, dtype: str, tile: int, *after: tuple[str, Mapping[str, Any]], head: str = "", carried: bool = True) -> Case:
    before = (("linear-quantizer", {"code_type": head}),) if head else ()
    return Case(label, dtype, (*before, ("adaptive-lorenzo", {"tile": tile}), *after), carried)


def headed(label: str, dtype: str, *before: tuple[str, Mapping[str, Any]]) -> Case:
    return Case(label, dtype, (*before, ("adaptive-lorenzo", {"tile": 256}), plain()), True)


def plain(segment: int = 32) -> tuple[str, Mapping[str, Any]]:
    return "plain-rate", {"segment": segment}


def planes(segment: int = 32) -> tuple[str, Mapping[str, Any]]:
    return "adaptive-bitplane", {"segment": segment}


FILLS = {"fill_values": "200 -9999 1e20"}
CASES = (
    case("float32", "float32", 256, plain(), head="auto"),
    case("float64-port", "float64", 256, planes(), head="auto", carried=False),
    case("int16", "int16", 64, plain()),
    case("uint16-port", "uint16", 32, plain(), carried=False),
    case("int32-zigzag", "int32", 256, ("zigzag", {}), planes()),
    case("int32-one-lane", "int32", 32, plain()),
    case("uint32-port", "uint32", 1024, plain(256), carried=False),
    case("int64-two-bits-in-two-segments", "int64", 256, plain(64)),
    case("uint64", "uint64", 512, planes(128)),
    headed("float32-filled", "float32", ("masked-quantizer", FILLS), ("forward-fill", {})),
    headed("float64-filled", "float64", ("masked-quantizer", FILLS), ("forward-fill", {})),
    headed("float16-filled", "float16", ("masked-quantizer", FILLS), ("forward-fill", {})),
    headed("bfloat16-filled", "bfloat16", ("masked-quantizer", FILLS), ("forward-fill", {})),
    headed("bfloat16", "bfloat16", ("linear-quantizer", {})),
    headed("int8-quantized", "int8", ("integer-quantizer", {})),
    headed("uint64-quantized", "uint64", ("integer-quantizer", {})),
)


@dataclass(frozen=True)
class Kernels:
    """Both directions of a chain in the emulator, and its NumPy form."""

    case: Case
    oracle: Executable
    programs: Mapping[Direction, EmulatedProgram]

    def forward(self, x: NDArray[Any], bound: bq.Bound | None) -> tuple[RunRecord, dict[Any, Any]]:
        chunks = -(-x.size // CHUNK)
        room = chunks * Composition(tuple(self.members("forward")), CHUNK).most_words
        sink = SimpleNamespace(sizes=np.empty(chunks, np.uint32), words=np.empty(room, np.uint32))
        run = GroupRun(RunRecord(), x.size, CHUNK, 1, bound, lambda: sink)
        return run.record, dict(self.programs["forward"].forward(x, run))

    def inverse(self, values: Mapping[Any, Any], record: RunRecord, count: int) -> NDArray[Any]:
        out = np.empty(count, self.case.dtype)
        return self.programs["inverse"].inverse(values, GroupRun(record, count, CHUNK, 1, out=out))

    def members(self, direction: Direction) -> Any:
        graph = self.oracle.graph
        return chain_members(graph, self.oracle.plan.types, graph.order, direction)


@pytest.fixture(scope="module", params=CASES, ids=str)
def kernels(request: pytest.FixtureRequest) -> Kernels:
    oracle, host = request.param.run(), host_target()
    made: dict[Direction, EmulatedProgram] = {}
    for direction in ("forward", "inverse"):
        parts = Composition(
            tuple(chain_members(oracle.graph, oracle.plan.types, oracle.graph.order, direction)), oracle.plan.chunk
        )
        assert (parts.chunk, refuse_geometry(parts)) == (CHUNK, None)
        assert parts.carries is request.param.carried
        made[direction] = EmulatedProgram(parts, direction, host)
    return Kernels(request.param, oracle, made)


def field_of(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """Tiles of all kinds: noise, smooth of first and second order, far from zero, and now and then anything at all."""
    kind = numpy_dtype(dtype)
    step = np.cumsum(rng.integers(-6, 7, n))
    parts = [rng.integers(-9, 10, n), step, np.cumsum(rng.integers(-1, 2, n).cumsum()), step + 20_000]
    which = np.repeat(rng.integers(0, 4, n // 200 + 1), 200)[:n]
    x = np.choose(which, parts)
    if dtype in FLOAT_DTYPES:
        x = (x * 0.01).astype(kind)
        with np.errstate(over="ignore"):
            odd = np.array([np.nan, np.inf, -1e30, *map(float, FILLS["fill_values"].split())]).astype(kind)
        x[rng.integers(0, n, 1 + n // 900)] = rng.choice(odd[:3], 1 + n // 900)
        x[rng.integers(0, n, 1 + n // 900)] = rng.choice(odd[3:], 1 + n // 900)
        return x
    x = x.astype(kind)
    info = np.iinfo(kind)
    x[rng.integers(0, n, 1 + n // 3000)] = rng.choice(np.array([info.min, info.max], kind), 1 + n // 3000)
    return x


COUNTS = (1, 2, 31, 33, 64, 255, 257, 300, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 600)


def test_kernels_make_what_numpy_makes(kernels: Kernels) -> None:
    rng = np.random.default_rng(20261)
    bound = kernels.case.bound
    for n in COUNTS:
        x = field_of(rng, n, kernels.case.dtype)
        record, expected = kernels.oracle.forward(x, bound, 1)
        found_record, found = kernels.forward(x, bound)
        assert found_record.state == record.state
        assert set(found) == set(expected)
        for port, value in expected.items():
            assert np.array_equal(found[port].sizes, value.sizes), (n, port)
            assert np.array_equal(found[port].words, value.words), (n, port)
        back = kernels.oracle.inverse(expected, record, n, 1, np.empty_like(x))
        assert kernels.inverse(expected, record, n).tobytes() == back.tobytes(), n


def test_each_direction_is_one_launch(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    launched, launch = [], EmulatedSession.launch

    def noted(self: EmulatedSession, module: Any, entry: str, *rest: Any) -> None:
        launched.append(entry)
        launch(self, module, entry, *rest)

    monkeypatch.setattr(EmulatedSession, "launch", noted)
    x = np.zeros(CHUNK + 5, kernels.case.dtype)
    head = ["briquette_survey"] if kernels.case.head else []
    record, values = kernels.forward(x, bq.Bound(1.0) if head else None)
    kernels.inverse(values, record, x.size)
    assert launched == [*head, "briquette_forward", "briquette_inverse"]


def test_damaged_words_are_found_as_numpy_finds_them(kernels: Kernels) -> None:
    rng = np.random.default_rng(20262)
    bound = kernels.case.bound
    x = field_of(rng, CHUNK + 700, kernels.case.dtype)
    record, values = kernels.oracle.forward(x, bound, 1)
    refused = 0
    for _ in range(60):
        port = list(values)[int(rng.integers(len(values)))]
        value = values[port]
        if not value.words.size:
            continue
        words, near = value.words.copy(), 70 if rng.random() < 0.7 else value.words.size  # metadata stand first
        words[rng.integers(min(near, words.size))] ^= np.uint32(1) << np.uint32(rng.integers(32))
        damaged = {**values, port: Chunked(value.sizes, words)}
        answers = [outcome(partial(kernels.inverse, damaged, record, x.size))]
        answers.append(outcome(partial(kernels.oracle.inverse, damaged, record, x.size, 1, np.empty_like(x))))
        assert answers[0] == answers[1], port
        refused += answers[0] is None
    assert refused > 3


def outcome(work: Callable[[], NDArray[Any]]) -> bytes | None:
    """What `work` makes, or None where it finds the archive damaged."""
    try:
        return work().tobytes()
    except ArchiveError:
        return None

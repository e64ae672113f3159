"""The GPU kernels of chains with a selector, whole, on a CPU: blocks of fibers run what the CUDA program launches.

The skeletons are compiled by the host compiler over `emulated_block.h`, their few lines of PTX as plain C++; the program
that takes memory, fills slots and launches is the real one. What comes out is the NumPy form's.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery, sources
from briquette.errors import ArchiveError
from briquette.executor import Executable
from briquette.harness import Direction, GroupRun
from briquette.planner import chain_members
from briquette.ports import Chunked
from briquette.record import RunRecord
from briquette.target import KernelSource
from briquette_warp.chain import Composition
from briquette_warp.cuda_program import CudaProgram, refuse_geometry

CHUNK = 8192
#: PTX of device.cuh -> the same in C++
PLAIN = (
    (r'asm volatile\("cp\.async\.cg[^"]*" ::"r"\((.*?)\), "l"\((.*)\)\);', r"copy16(\1, \2);"),
    (r'asm volatile\("cp\.async\.commit[^;]*;[^;]*;" ::: "memory"\);', r""),
    (r'asm volatile\("st\.relaxed[^;]*;" ::"l"\((.*?)\), "l"\((.*?)\) : "memory"\);', r"*(\1) = \2;"),
    (r'asm volatile\("ld\.relaxed[^;]*;" : "=l"\((.*?)\) : "l"\((.*?)\) : "memory"\);', r"\1 = *(\2);"),
    (r"extern __shared__ Vector memory\[\];", r"Vector *memory = reinterpret_cast<Vector *>(emulated::memory);"),
)
CALL = """
namespace { template <class R> void call(void (*kernel)(R), const void *slots) { kernel(*static_cast<const R *>(slots)); } }
"""


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


@dataclass(frozen=True)
class Case:
    """A chain and the type it reads; `carried`: the coder keeps the tiles."""

    label: str
    dtype: str
    stages: tuple[tuple[str, Mapping[str, Any]], ...]
    carried: bool

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


def plain(segment: int = 32) -> tuple[str, Mapping[str, Any]]:
    return "plain-rate", {"segment": segment}


def planes(segment: int = 32) -> tuple[str, Mapping[str, Any]]:
    return "adaptive-bitplane", {"segment": segment}


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
)


@dataclass
class Array:
    """A device array, in host memory."""

    pointer: int
    size: int
    dtype: Any
    owner: Any

    @property
    def nbytes(self) -> int:
        return self.size * int(self.dtype.itemsize)

    def __getitem__(self, part: slice) -> Array:
        begin, end, _ = part.indices(self.size)
        return Array(self.pointer + begin * self.dtype.itemsize, end - begin, self.dtype, self.owner)


@dataclass
class Session:
    """Memory that is poisoned when it is taken, and kernels that have ended when `launch` returns."""

    launched: list[str] = field(default_factory=list)

    def memory(self, nbytes: int) -> Any:
        held = np.full(nbytes + 64, 0xA5, np.uint8)
        skip = -held.ctypes.data % 32
        return SimpleNamespace(pointer=held.ctypes.data + skip, nbytes=nbytes, held=held)

    def array(self, count: int, dtype: Any, memory: Any = None, offset: int = 0) -> Array:
        held = memory if memory is not None else self.memory(count * np.dtype(dtype).itemsize)
        return Array(held.pointer + offset, count, np.dtype(dtype), held)

    def zero(self, pointer: int, nbytes: int) -> None:
        ctypes.memset(pointer, 0, nbytes)

    def launch(self, module: Any, entry: str, grid: int, shared: int, values: list[int]) -> None:
        self.launched.append(entry)
        slots = np.array(values, np.uint64)
        message = ctypes.create_string_buffer(256)
        kernel = ctypes.cast(getattr(module, f"run_{entry}"), ctypes.c_void_p)
        status = module.emulate(kernel, ctypes.c_uint32(grid), ctypes.c_void_p(slots.ctypes.data), message)
        assert status == 0, f"{entry}: {message.value.decode()}"

    def read(self, pointer: int, out: NDArray[Any]) -> NDArray[Any]:
        ctypes.memmove(out.ctypes.data, pointer, out.nbytes)
        return out

    def peek(self, pointer: int, nbytes: int) -> bytes:
        return ctypes.string_at(pointer, nbytes)

    def fetched(self, value: Chunked) -> Chunked:
        """Return a value as NumPy arrays."""
        if isinstance(value.words, np.ndarray):
            return value
        return Chunked(*(self.read(a.pointer, np.empty(a.size, a.dtype)) for a in (value.sizes, value.words)))

    def write(self, pointer: int, data: NDArray[Any]) -> None:
        ctypes.memmove(pointer, data.ctypes.data, data.nbytes)

    def send(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(pointer, data, len(data))

    def multiprocessors(self) -> int:
        return 1

    def current(self) -> Any:
        return nullcontext()


class Emulated:
    """A target whose GPU is a CPU."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sessions = Session()

    def session(self, array: Any = None) -> Session:
        return self.sessions

    def compile(self, source: KernelSource) -> ctypes.CDLL:
        folder = self._folder / source.entry_points[0]
        for header, text in sources.resolve_headers(source).texts.items():
            path = folder / header
            path.parent.mkdir(parents=True, exist_ok=True)
            for pattern, plain in PLAIN:
                text = re.sub(pattern, plain, text)
            assert "asm" not in text, f"{header} has PTX that this test does not know"
            path.write_text(text, encoding="utf-8")
        entries = "".join(
            f'extern "C" __attribute__((visibility("default"))) void run_{e}(const void *slots) {{ call({e}, slots); }}\n'
            for e in source.entry_points
        )
        (folder / "unit.cpp").write_text(source.text + CALL + entries, encoding="utf-8")
        emulator = Path(__file__).with_name("emulated_block.h")
        flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{folder}"]
        command = [*compiler(), *flags, "-include", str(emulator), "unit.cpp", "-o", "unit.so"]
        done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[:4000]
        return ctypes.CDLL(str(folder / "unit.so"))


def compiler() -> list[str]:
    found = os.environ.get("CXX", "").split() or [path for path in map(shutil.which, ("c++", "g++", "clang++")) if path][:1]
    if not found:
        pytest.skip("no C++ compiler: set CXX, or install c++, g++ or clang++")
    return found


@dataclass(frozen=True)
class Kernels:
    """Both directions of a chain for the emulated GPU, and its NumPy form."""

    case: Case
    oracle: Executable
    target: Emulated
    programs: Mapping[Direction, CudaProgram]

    def forward(self, x: NDArray[Any], bound: bq.Bound | None) -> tuple[RunRecord, dict[Any, Chunked]]:
        chunks = -(-x.size // CHUNK)
        room = chunks * Composition(tuple(self.members("forward")), CHUNK).most_words
        sink = SimpleNamespace(sizes=np.empty(chunks, np.uint32), words=np.empty(room, np.uint32))
        run = GroupRun(RunRecord(), x.size, CHUNK, 1, bound, lambda: sink)
        source = self.placed(x)
        made = self.programs["forward"].forward(source, run)
        return run.record, {port: self.target.sessions.fetched(value) for port, value in made.items()}

    def inverse(self, values: Mapping[Any, Any], record: RunRecord, count: int) -> NDArray[Any]:
        out = self.target.sessions.array(count, self.case.dtype)
        self.programs["inverse"].inverse(values, GroupRun(record, count, CHUNK, 1, out=out))
        return self.target.sessions.read(out.pointer, np.empty(count, self.case.dtype))

    def placed(self, x: NDArray[Any]) -> Array:
        made = self.target.sessions.array(x.size, x.dtype.name)
        self.target.sessions.write(made.pointer, np.ascontiguousarray(x))
        return made

    def members(self, direction: Direction) -> Any:
        graph = self.oracle.graph
        return chain_members(graph, self.oracle.plan.types, graph.order, direction)


@pytest.fixture(scope="module", params=CASES, ids=str)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    oracle, target = request.param.run(), Emulated(tmp_path_factory.mktemp("kernels"))
    made: dict[Direction, CudaProgram] = {}
    for direction in ("forward", "inverse"):
        parts = Composition(
            tuple(chain_members(oracle.graph, oracle.plan.types, oracle.graph.order, direction)), oracle.plan.chunk
        )
        assert (parts.chunk, refuse_geometry(parts)) == (CHUNK, None)
        assert parts.carries is request.param.carried
        made[direction] = CudaProgram(parts, direction, target)
    return Kernels(request.param, oracle, target, made)


def field_of(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """Tiles of all kinds: noise, smooth of first and second order, far from zero, and now and then anything at all."""
    kind = np.dtype(dtype)
    step = np.cumsum(rng.integers(-6, 7, n))
    parts = [rng.integers(-9, 10, n), step, np.cumsum(rng.integers(-1, 2, n).cumsum()), step + 20_000]
    which = np.repeat(rng.integers(0, 4, n // 200 + 1), 200)[:n]
    x = np.choose(which, parts)
    if kind.kind == "f":
        x = (x * 0.01).astype(kind)
        x[rng.integers(0, n, 1 + n // 900)] = rng.choice(np.array([np.nan, np.inf, -1e30], kind), 1 + n // 900)
        return x
    x = x.astype(kind)
    info = np.iinfo(kind)
    x[rng.integers(0, n, 1 + n // 3000)] = rng.choice(np.array([info.min, info.max], kind), 1 + n // 3000)
    return x


COUNTS = (1, 2, 31, 33, 64, 255, 257, 300, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 600)


def test_kernels_make_what_numpy_makes(kernels: Kernels) -> None:
    rng = np.random.default_rng(20261)
    bound = bq.Bound(4e-3) if kernels.case.dtype.startswith("float") else None
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


def test_each_direction_is_one_launch(kernels: Kernels) -> None:
    x = np.zeros(CHUNK + 5, kernels.case.dtype)
    head = ["briquette_survey"] if kernels.case.dtype.startswith("float") else []
    kernels.target.sessions.launched.clear()
    record, values = kernels.forward(x, bq.Bound(1.0) if head else None)
    kernels.inverse(values, record, x.size)
    assert kernels.target.sessions.launched == [*head, "briquette_forward", "briquette_inverse"]


def test_damaged_words_are_found_as_numpy_finds_them(kernels: Kernels) -> None:
    rng = np.random.default_rng(20262)
    bound = bq.Bound(4e-3) if kernels.case.dtype.startswith("float") else None
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

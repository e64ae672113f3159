"""Decompression of a part on a GPU: what the kernel is launched with. No GPU: the session writes down what it is asked for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette.harness import GroupRun
from briquette.planner import chain_members
from briquette.ports import Chunked
from briquette.record import RunRecord
from briquette_warp.chain import Composition
from briquette_warp.cuda_program import CHUNK, CudaProgram
from briquette_warp.cuda_run import Placed

OUT, N, BEGIN, PARAMS, STREAM, SIZES, WORDS, BLOCKS, HELD, SIDE_SIZES, SIDE, SIDE_BLOCKS, SIDE_HELD, FLAG = range(14)
FIRST, CHUNKS = 70, 3
COUNT = 2 * CHUNK + 100
NODES = ("linear-quantizer", "lorenzo-1d", "plain-rate")


@dataclass
class Array:
    """A device array: an address, and what was copied there."""

    pointer: int
    size: int
    dtype: Any
    held: Any = None


@dataclass
class Session:
    """Hands out addresses and keeps what was sent and launched."""

    at: int = 1 << 20
    arrays: dict[int, Array] = field(default_factory=dict)
    launches: list[tuple[str, int, list[int]]] = field(default_factory=list)

    def memory(self, nbytes: int) -> Any:
        self.at += nbytes + 256
        return SimpleNamespace(pointer=self.at)

    def array(self, count: int, dtype: str) -> Array:
        made = Array(self.memory(count * np.dtype(dtype).itemsize).pointer, count, np.dtype(dtype))
        self.arrays[made.pointer] = made
        return made

    def write(self, pointer: int, data: NDArray[Any]) -> None:
        self.arrays[pointer].held = data.copy()

    def send(self, pointer: int, data: bytes) -> None:
        pass

    def launch(self, module: Any, entry: str, grid: int, shared: int, slots: list[int]) -> None:
        self.launches.append((entry, grid, list(slots)))

    def current(self) -> Any:
        return nullcontext()


def program(nodes: tuple[str, ...]) -> CudaProgram:
    run = bq.Pipeline.from_preset("fast").executable("float32", "numpy")
    members = chain_members(run.graph, run.plan.types, nodes, "inverse")
    target = SimpleNamespace(compile=lambda source: object())
    return CudaProgram(Composition(tuple(members), CHUNK), "inverse", target)


def launched(nodes: tuple[str, ...], values: dict[tuple[str, str], Any]) -> tuple[Session, int, list[int]]:
    session = Session()
    state = {"linear-quantizer": {"eb": 1e-3, "quant_step": 2e-3, "inverse_step": 500.0, "fill_code": 0}}
    run = GroupRun(RunRecord(state), COUNT, CHUNK, 1, out=Array(4096, COUNT, np.dtype(np.float32)))
    program(nodes).enqueue_inverse(session, values, run)
    ((entry, grid, slots),) = session.launches
    assert entry == "briquette_inverse"
    return session, grid, slots


def placed(base: int, words: int) -> Placed:
    """The value of a whole array of 100 chunks."""
    kinds = ((base, 100, "uint32"), (base + 1000, words, "uint32"), (base + 90_000, 2, "uint64"))
    return Placed(*(Array(at, size, np.dtype(kind)) for at, size, kind in kinds))


def test_a_part_of_placed_values_is_the_whole_and_where_to_begin() -> None:
    main, side = placed(1 << 30, 5000).cut(FIRST, FIRST + CHUNKS), placed(1 << 31, 70).cut(FIRST, FIRST + CHUNKS)
    _, grid, slots = launched(NODES, {("plain-rate", "out"): main, ("linear-quantizer", "outliers"): side})
    assert grid == CHUNKS
    # the kernel decodes chunk BEGIN + block, of which N - chunk * CHUNK elements are there, to block * CHUNK of OUT
    assert (slots[OUT], slots[BEGIN], slots[N] - (FIRST + CHUNKS - 1) * CHUNK) == (4096, FIRST, 100)
    assert slots[SIZES : HELD + 1] == [1 << 30, (1 << 30) + 1000, (1 << 30) + 90_000, 5000]
    assert slots[SIDE_SIZES : SIDE_HELD + 1] == [1 << 31, (1 << 31) + 1000, (1 << 31) + 90_000, 70]


def test_cutting_again_counts_from_the_part() -> None:
    assert placed(1 << 30, 9).cut(10, 50).cut(5, 6).begin == 15


def test_values_in_host_memory_are_parts_already() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 50, CHUNKS).astype(np.uint32)
    value = Chunked(sizes, np.zeros(int(sizes.sum()), np.uint32))
    nothing = Chunked(np.zeros(CHUNKS, np.uint32), np.empty(0, np.uint32))
    _, grid, slots = launched(NODES, {("plain-rate", "out"): value, ("linear-quantizer", "outliers"): nothing})
    assert (grid, slots[BEGIN], slots[N]) == (CHUNKS, 0, COUNT)
    assert slots[SIDE_SIZES : SIDE_HELD + 1] == [0, 0, 0, 0]


@pytest.mark.parametrize("first", [1, 63, 64, 70, 128])
def test_host_values_beside_placed_ones_are_found_by_the_same_chunk(first: int) -> None:
    sizes = np.array([7, 0, 11], np.uint32)
    side = Chunked(sizes, np.zeros(18, np.uint32))
    main = placed(1 << 30, 5000).cut(first, first + CHUNKS)
    session, _, slots = launched(NODES, {("plain-rate", "out"): main, ("linear-quantizer", "outliers"): side})
    held, blocks = (session.arrays[slots[k]].held for k in (SIDE_SIZES, SIDE_BLOCKS))
    for c, (offset, size) in enumerate(zip([0, 7, 7], sizes.tolist(), strict=True), first):
        assert held[c] == size
        assert blocks[c // 64] + held[c - c % 64 : c].sum() == offset  # as chunk_offset in device.cuh has it


@pytest.mark.parametrize("base", [1 << 33, 512])
def test_a_stream_of_codes_starts_at_the_part(base: int) -> None:
    """Staged: the quantizer reads codes that an earlier step made for the part, and values aside of the whole."""
    codes = Array(base, COUNT, np.dtype(np.int32))
    side = placed(1 << 31, 70).cut(FIRST, FIRST + CHUNKS)
    values = {("linear-quantizer", "codes"): codes, ("linear-quantizer", "outliers"): side}
    _, grid, slots = launched(("linear-quantizer",), values)
    assert (grid, slots[BEGIN]) == (CHUNKS, FIRST)
    assert (slots[STREAM] + FIRST * CHUNK * 4) % (1 << 64) == base
    values["linear-quantizer", "outliers"] = Chunked(np.zeros(CHUNKS, np.uint32), np.empty(0, np.uint32))
    _, _, slots = launched(("linear-quantizer",), values)
    assert (slots[STREAM], slots[BEGIN], slots[N]) == (base, 0, COUNT)

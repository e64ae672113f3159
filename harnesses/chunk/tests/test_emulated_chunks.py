"""The complete CUDA kernels of the harness in the lane emulator: the values of the NumPy reference, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chunk_kit import SIZES, TYPES, as_bytes, check, field, reference
from numpy.typing import NDArray

import briquette as bq
from briquette.errors import ArchiveError
from briquette.harness import Direction, GroupProgram, Member
from briquette.ports import Chunked
from briquette.record import Bound
from briquette.target import Target
from briquette_chunk.chain import ChunkComposition
from briquette_chunk.cuda_program import ChunkCudaProgram
from briquette_chunk.harness import ChunkHarness

emulation: Any = pytest.importorskip("briquette_warp.emulated", reason="this briquette-warp brings no lane emulator")


class Emulated(emulation.EmulatedProgram, ChunkCudaProgram):  # type: ignore[name-defined,misc]
    """A group's CUDA kernels in the emulator."""


@pytest.fixture
def emulated(host: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the host target run every group in the emulator; returns what runs, direction by direction."""
    ran = []

    def program(self: ChunkHarness, chain: list[Member], direction: Direction, target: Target, chunk: int) -> GroupProgram:
        ran.append(direction)
        return Emulated(ChunkComposition(tuple(chain), chunk), direction, target)

    monkeypatch.setattr(ChunkHarness, "program", program)
    return ran


def stage(use: str, **params: int) -> str:
    return f'[[stage]]\nuse = "{use}"\nparams = {{ {", ".join(f"{k} = {v}" for k, v in params.items())} }}\n'


def pipeline(dtype: str, size: int, word: int, head: bool = False) -> bq.Pipeline:
    lines = ['[[stage]]\nuse = "linear-quantizer"\n'] if head else []
    lines.append(stage("chunk-difference", chunk_bytes=size))
    lines += [stage("negabinary")] if head or "int" in dtype else []
    lines += [stage("bit-shuffle", chunk_bytes=size, word=word), stage("toy-turn", chunk_bytes=size, add=0)]
    return bq.Pipeline.from_toml("".join([*lines, stage("toy-trim", chunk_bytes=size)]))


CASES = [(dtype, (1, 2, 4, 8)[i % 4], SIZES[i % 3]) for i, dtype in enumerate((*TYPES, "int32", "int16"))]


@pytest.mark.parametrize(("dtype", "word", "size"), CASES)
def test_whole_kernels_make_the_reference_values(toys: Any, emulated: list[str], dtype: str, word: int, size: int) -> None:
    pipe, items = pipeline(dtype, size, word), size // np.dtype(dtype).itemsize
    for n in (1, 3, 33 * word + 1, items // 2 + 7, items - 1, items, items + 1, 3 * items + 100):
        check(pipe, field(n, dtype), 1, staged=n == items + 1)
    assert set(emulated) == {"forward", "inverse"}


@pytest.mark.parametrize(("dtype", "size"), [("float32", 16384), ("float32", 4096), ("float64", 8192)])
def test_heads_keep_values_aside(toys: Any, emulated: list[str], dtype: str, size: int) -> None:
    pipe = pipeline(dtype, size, 4, head=True)
    for n in (1, 700, 9000):
        x = field(n, dtype)
        if n > 1:
            x[::97], x[n // 2 : n // 2 + 100], x[7] = np.nan, np.inf, 3e38
        for bound in (Bound(1e-3), Bound(1e-3, "rel"), Bound(1e-9)):
            expected, restored = reference(pipe, x, bound)
            run = pipe.executable(dtype, "host", "auto")
            assert len(run.plan.forward.groups[0]) == 6
            record, values = run.forward(x, bound, 1)
            assert as_bytes(values) == as_bytes(expected), (n, bound)
            out = np.full_like(x, 77)
            run.inverse(dict(expected), record, n, 1, out)
            assert out.tobytes() == restored.tobytes(), (n, bound)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 16384), ("float32", 4096), ("float64", 16384), ("float64", 8192)])
@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
def test_heads_without_a_side_stream(toys: Any, emulated: list[str], mode: Any, dtype: str, size: int) -> None:
    head = "in-place-log-quantizer" if mode == "pwrel" else "in-place-quantizer"
    planes = f', word = 0 }}\n[[stage]]\nuse = "zero-elimination"\nparams = {{ chunk_bytes = {size}, levels = 4, planes = '
    planes += f"{8 * np.dtype(dtype).itemsize} }}\n"
    text = f'[[stage]]\nuse = "{head}"\n' + stage("chunk-difference", chunk_bytes=size) + stage("zigzag")
    pipe = bq.Pipeline.from_toml(text + f'[[stage]]\nuse = "bit-shuffle"\nparams = {{ chunk_bytes = {size}{planes}')
    for n in (1, 700, 9000):
        x = field(n, dtype)
        if n > 1:
            x[::97], x[n // 2 : n // 2 + 100], x[7], x[9] = np.nan, np.inf, 3e38, -0.0
        for eb in (1e-3, 1e-9):
            bound = Bound(eb, mode)
            expected, restored = reference(pipe, x, bound)
            run = pipe.executable(dtype, "host", "auto")
            assert len(run.plan.forward.groups[0]) == 5
            record, values = run.forward(x, bound, 1)
            assert as_bytes(values) == as_bytes(expected), (n, bound)
            out = np.full_like(x, 77)
            run.inverse(dict(expected), record, n, 1, out)
            assert out.tobytes() == restored.tobytes(), (n, bound)


def test_damage_is_found(toys: Any, emulated: list[str]) -> None:
    run = pipeline("int32", 4096, 4).executable("int32", "host", "auto")
    x: NDArray[Any] = np.zeros(1500, np.int32)
    x[:100] = 7
    record, values = run.forward(x, None, 1)
    ((port, coded),) = values.items()
    assert 0 < coded.sizes[0] < 1024
    words = coded.words.copy()
    words[coded.sizes[0] - 1] = 0
    shifted = coded.sizes + np.array([0, 2000], np.uint32)
    more = np.concatenate([coded.words, np.zeros(2000, np.uint32)])
    for bad in (Chunked(coded.sizes, words), Chunked(shifted, more)):
        with pytest.raises(ArchiveError, match="damaged"):
            run.inverse({port: bad}, record, x.size, 1, np.empty_like(x))

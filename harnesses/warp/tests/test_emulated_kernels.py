"""The complete CUDA kernels of the harness in the emulator: the archives and values of the NumPy reference, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from emulator_kit import forget_pipelines, host_target
from numpy.typing import NDArray

import briquette as bq
from briquette.errors import ArchiveError
from briquette.harness import Direction, GroupProgram, Member
from briquette.ports import Chunked
from briquette.target import Target
from briquette_warp.chain import Composition
from briquette_warp.emulated import EmulatedProgram
from briquette_warp.harness import WarpHarness

PRESETS = ("fast", "planes", "zigzag")
COUNTS = (33, 300, 1023, 8191, 8192, 8193, 16385 + 77)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Have the host target run every group in the emulator; returns what runs, direction by direction."""
    host_target()
    ran = []

    def program(self: WarpHarness, chain: list[Member], direction: Direction, target: Target, chunk: int) -> GroupProgram:
        ran.append(direction)
        return EmulatedProgram(Composition(tuple(chain), chunk), direction, target)

    monkeypatch.setattr(WarpHarness, "program", program)
    forget_pipelines()  # of tests before, whose programs are none of the emulator's
    yield ran
    forget_pipelines()


def fields(n: int, dtype: str) -> list[NDArray[Any]]:
    rng = np.random.default_rng(n)
    smooth = np.cumsum(rng.standard_normal(n)).astype(dtype)
    few, many = smooth.copy(), smooth.copy()
    few[rng.random(n) < 0.02] = np.nan
    many[rng.random(n) < 0.7] = np.inf
    many[: n // 2] = -np.inf
    return [smooth, few, many]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", PRESETS)
def test_whole_kernels_make_the_reference_archives(preset: str, dtype: str, emulated: list[str]) -> None:
    for n in COUNTS:
        for x in fields(n, dtype):
            for eb, mode in ((1e-3, "rel"), (1e-3, "abs"), (1e-9, "abs")):
                archive = bytes(bq.compress(x, eb, mode, pipeline=preset, target="numpy"))
                expected = bq.decompress(archive, target="numpy")
                made = bq.compress_run(x, eb, mode, pipeline=preset, target="host", fusion="auto")
                assert made.archive == archive, (n, eb, mode)
                assert made.raw or made.plan.forward.launches == 1
                out = np.full_like(x, -77)
                assert bq.decompress(archive, target="host", out=out).tobytes() == expected.tobytes(), (n, eb, mode)
    assert set(emulated) == {"forward", "inverse"}


def test_each_op_alone_and_unaligned_memory(emulated: list[str]) -> None:
    bytes_of = np.zeros(4 * 9001 + 1, np.uint8)
    x = bytes_of[1:].view(np.float32)  # at an odd address
    x[:] = np.sin(np.arange(9001) / 50)
    archive = bytes(bq.compress(x, 1e-3, pipeline="zigzag", target="numpy"))
    made = bq.compress_run(x, 1e-3, pipeline="zigzag", target="host", fusion="off")
    assert made.archive == archive
    assert made.plan.forward.launches == 4
    out = np.zeros(4 * 9001 + 1, np.uint8)[1:].view(np.float32)
    bq.decompress(archive, target="host", fusion="off", out=out)
    assert out.tobytes() == bq.decompress(archive, target="numpy").tobytes()
    assert emulated.count("forward") == emulated.count("inverse") == 4


def test_damaged_words_are_refused(emulated: list[str]) -> None:
    run = bq.Pipeline.from_preset("fast").executable("float32", "host", "auto")
    x = fields(9000, "float32")[0]
    record, values = run.forward(x, bq.Bound(1e-3), 1)
    coded = values["plain-rate", "out"]
    words = coded.words.copy()
    words[0] ^= np.uint32(0x11)
    with pytest.raises(ArchiveError, match="damaged"):
        run.inverse({**values, ("plain-rate", "out"): Chunked(coded.sizes, words)}, record, x.size, 1, np.empty_like(x))
    assert emulated == ["forward", "inverse"]

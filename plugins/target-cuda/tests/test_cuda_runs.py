"""Whole runs of the host side without a GPU: the kernels are the NumPy reference, all around them is what runs on one."""

from __future__ import annotations

import gc
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_stand_in import Driver, started

import briquette as bq
from briquette import discovery
from briquette_conformance.resealing import reseal
from briquette_target_cuda import driver as target_driver
from briquette_target_cuda.arrays import DeviceArray, spares_of
from briquette_target_cuda.target import CudaMemory, Session

pytestmark = pytest.mark.usefixtures("own_registry")

BOUNDS = [bq.Bound(1e-3), bq.Bound(1e-3, "rel")]


class Array:
    """A framework's array: the array interface, DLPack's word for where it lies, and nothing else."""

    def __init__(self, held: DeviceArray, stream: int = 1) -> None:
        self.held, self.stream, self.asked = held, stream, 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.asked += 1
        return {**self.held.__cuda_array_interface__, "stream": self.stream}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def field(n: int, dtype: str = "float32", aside: bool = True) -> np.ndarray[Any, Any]:
    x = (np.sin(np.arange(n) / 40) + np.random.default_rng(n).standard_normal(n) / 30).astype(dtype)
    if aside and n > 20:
        x[::97] = np.nan
        x[5] = np.inf
    return x


@pytest.mark.parametrize("pools", [True, False])
@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3000, 8192 * 3 + 5])
@pytest.mark.filterwarnings("ignore:CUDA device 0 has no memory pools")
def test_bytes_to_the_device_and_back(
    stand_in: Callable[..., Driver], n: int, dtype: str, bound: bq.Bound, aside: bool, pools: bool
) -> None:
    made = stand_in(pools=pools)
    pipe, x = started(made, dtype, bound), field(n, dtype, aside)
    expected = bytes(pipe.compress(x, bound.eb, bound.mode, target="numpy"))
    result = pipe.run(x, bound.eb, bound.mode, target="cuda", fusion="auto")
    assert type(result.archive) is bytes
    assert result.archive == expected
    assert not result.raw
    back = bq.decompress(expected, target="cuda", fusion="auto")
    assert back.tobytes() == bq.decompress(expected, target="numpy").tobytes()
    part = slice(n // 3, n // 2)
    assert bq.decompress(expected, target="cuda", fusion="auto", flat=part).tobytes() == back[part].tobytes()
    out = bytearray(bq.max_archive_bytes(x))
    assert pipe.compress(x, bound.eb, bound.mode, target="cuda", fusion="auto", out=out) == expected
    kernels = [name for name in made.log if name.startswith("briquette_")]
    names = ["survey", "forward", "inverse", *(["aside"] if aside else [])]
    assert set(kernels) == {f"briquette_{name}" for name in names}
    made.cuCtxSynchronize()
    assert set(made.live) == {at for _, at in spares_of(0)._held}  # nothing stays allocated but what is kept for the next run
    assert not made.stack


@pytest.mark.parametrize("aside", [False, True])
def test_archives_that_stay_on_the_device(stand_in: Callable[..., Driver], aside: bool) -> None:
    made = stand_in()
    pipe, x = started(made), field(8192 * 70 + 12, aside=aside)
    expected = bytes(pipe.compress(x, 1e-3, target="numpy"))
    given = CudaMemory().upload(x)
    archive = bq.compress_on_device(given.reshaped((4, x.size // 4, 1)), 1e-3, pipeline=pipe)
    assert archive.shape == (4, x.size // 4, 1)
    blob = archive.to_bytes()
    assert type(blob) is bytes
    assert bq.decompress(blob, target="numpy").tobytes() == bq.decompress(expected, target="numpy").tobytes()
    assert CudaMemory().download(archive.decompress()).tobytes() == bq.decompress(expected, target="numpy").tobytes()
    part = archive.decompress(flat=slice(530_000, 560_000))
    del archive
    made.cuCtxSynchronize()
    whole = bq.decompress(expected, target="numpy")
    assert CudaMemory().download(part).tobytes() == whole[530_000:560_000].tobytes()


def test_data_that_do_not_compress_are_held_raw(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, x = started(made, bound=bq.Bound(1e-30)), np.random.default_rng(5).standard_normal(200_000).astype(np.float32)
    expected = bytes(pipe.compress(x, 1e-30, target="numpy"))
    result = pipe.run(x, 1e-30, target="cuda", fusion="auto")
    assert (result.raw, result.archive) == (True, expected)


@pytest.mark.parametrize("order", ["F", "reversed", "unaligned", "read-only", "big-endian"])
def test_arrays_of_any_memory_order(stand_in: Callable[..., Driver], order: str) -> None:
    made = stand_in()
    pipe, x = started(made), field(300 * 700).reshape(300, 700)
    if order == "F":
        x = np.asfortranarray(x)
    elif order == "reversed":
        x = x[::-1]
    elif order == "unaligned":
        held = np.zeros(x.nbytes + 1, np.uint8)
        held[1:] = x.view(np.uint8).ravel()
        x = held[1:].view(np.float32).reshape(x.shape)
    elif order == "read-only":
        x.flags.writeable = False
    else:
        x = x.astype(">f4")
    expected = bytes(pipe.compress(x, 1e-3, target="numpy"))
    assert pipe.compress(x, 1e-3, target="cuda", fusion="auto") == expected
    back = bq.decompress(expected, target="cuda", fusion="auto")
    assert back.dtype == x.dtype
    assert back.tobytes() == bq.decompress(expected, target="numpy").tobytes()


def test_many_threads_at_once(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, x = started(made), field(400_000)
    expected = bytes(pipe.compress(x, 1e-3, target="numpy"))
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(lambda _: pipe.compress(x, 1e-3, target="cuda", fusion="auto"), range(12))) == {expected}


def test_a_framework_that_works_in_the_same_stream_needs_no_exchange(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    pipe, x = started(made), field(250_000, aside=False)
    array = Array(CudaMemory().upload(x))
    made.stack.append(0x1000)  # as the framework has it
    made.log.clear()
    archive = bq.compress_on_device(array, 1e-3, pipeline=pipe)
    assert array.asked == 1
    assert made.log == ["alloc async", "briquette_survey", "briquette_forward", "sync"]
    assert archive.to_bytes() == pipe.compress(x, 1e-3, target="numpy")
    assert made.stack == [0x1000]


@pytest.mark.parametrize(("stream", "current"), [(7, True), (None, True), (1, False)])
def test_any_other_array_goes_through_the_exchange(
    stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, stream: int | None, current: bool
) -> None:
    from briquette_target_cuda import arrays

    made = stand_in()
    held = CudaMemory().upload(field(5000))
    asked: list[tuple[Any, int]] = []
    monkeypatch.setattr(arrays, "_viewed", lambda x, own: asked.append((x, own)) or held)
    if current:
        made.stack.append(0x1000)
    array = Array(held, stream)  # type: ignore[arg-type]
    assert arrays.view_of(array, 1) is held
    assert asked == [(array, 1)]


def test_the_archives_state_is_the_references(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    for bound in BOUNDS:
        pipe, x = started(made, bound=bound), field(100_000)
        device = pipe.run(x, bound.eb, bound.mode, target="cuda", fusion="auto").record
        host = pipe.run(x, bound.eb, bound.mode, target="numpy").record
        assert device.state == host.state
        assert device.results["linear-quantizer"]["outliers"] == host.results["linear-quantizer"]["outliers"]


def test_options_and_the_registry_are_looked_up_again_when_they_change(
    stand_in: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in()
    pipe = bq.Pipeline.from_preset("fast")
    first = pipe.executable("float32", "cuda", "auto")
    assert pipe.executable("float32", "cuda", "auto") is first
    assert pipe.executable("float64", "cuda", "auto") is not first
    assert pipe.executable("float32", "cuda", "off").plan.forward.launches == 3
    monkeypatch.setitem(os.environ, "BRIQUETTE_FUSION", "off")
    assert pipe.executable("float32", "cuda", "auto").plan.forward.launches == 3
    monkeypatch.delitem(os.environ, "BRIQUETTE_FUSION")
    with discovery.use(discovery.Registry.scan()):
        assert pipe.executable("float32", "cuda", "auto").target is discovery.registry().target("cuda")
    for wrong in (np.array(["auto", "off"]), 7):
        with pytest.raises(bq.BriquetteError, match="fusion="):
            pipe.executable("float32", "cuda", wrong)  # type: ignore[arg-type]


def test_nvrtc_is_asked_once_and_remembered_beside_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from briquette.cache import Cache
    from briquette.target import KernelSource
    from briquette_target_cuda import compiler

    library = tmp_path / "libnvrtc.so.13"
    library.write_bytes(b"one")
    asked: list[str] = []

    def nvrtc() -> tuple[tuple[int, int], tuple[int, ...]]:
        asked.append(library.read_text())
        return (13, len(library.read_bytes())), (80, 90)

    nvrtc.cache_info = lambda: type("Info", (), {"currsize": 0})  # type: ignore[attr-defined]
    monkeypatch.setattr(compiler, "nvrtc", nvrtc)
    monkeypatch.setattr(compiler, "_library", lambda: (str(library), library.read_text()))
    monkeypatch.setattr(compiler, "_compile", lambda source, headers, form, arch: f"{asked[-1]} {arch}".encode())
    cache, source = Cache(tmp_path / "cache"), KernelSource("a", "int a;", ("a",))
    assert compiler.compiled(source, (9, 0), cache) == b"one sm_90"
    asked.clear()
    assert compiler.compiled(source, (9, 0), Cache(tmp_path / "cache")) == b"one sm_90"
    assert not asked
    assert compiler.compiled(source, (8, 0), cache) == b"one sm_80"
    assert asked == ["one"]
    library.write_bytes(b"another")
    assert compiler.compiled(source, (9, 0), cache) == b"another sm_90"


def test_the_context_is_made_current_only_where_it_is_not(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    with target_driver.current(0), target_driver.current(0):
        assert made.stack == [0x1000]
    assert made.stack == []
    made.stack.append(0x99)
    with target_driver.current(0):
        assert made.stack == [0x99, 0x1000]
    assert made.stack == [0x99]


def test_small_memory_of_the_default_stream_is_taken_again(stand_in: Callable[..., Driver]) -> None:
    made = stand_in()
    session, other = Session(0, 1), Session(0, 7)
    with session.current():
        first = session.memory(1000)
        at = first.pointer
        del first
        assert other.memory(1000).pointer != at  # whose work is in another order
        assert session.memory(1001).pointer != at
        again = session.memory(1000)
        assert again.pointer == at
        assert session.memory(1000).pointer != at  # it is in use
        large = session.memory((2 << 20) + 1)
        del large, again
        many = [session.memory(2000 + i) for i in range(20)]
        del many
    made.cuCtxSynchronize()
    held = spares_of(0)._held
    assert sorted(nbytes for nbytes, _ in held) == list(range(2000, 2008))  # those given back last
    assert {at for _, at in held} == set(made.live)


def test_a_run_leaves_nothing_to_the_garbage_collector(stand_in: Callable[..., Driver]) -> None:
    """What refers to itself lives until the collector comes by, and brings it by sooner: that takes longer than a call."""
    pipe, x = started(stand_in()), field(30_000)
    given = CudaMemory().upload(x)
    bq.compress_on_device(given, 1e-3, pipeline=pipe).decompress()
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            bq.compress_on_device(given, 1e-3, pipeline=pipe).decompress()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = [type(each) for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not [kind for kind in found if kind.__module__.startswith("briquette")]  # the stand-in makes types of its own


@pytest.mark.parametrize("preset", discovery.registry().presets())
def test_truncated_archives_are_refused_before_anything_is_launched(stand_in: Callable[..., Driver], preset: str) -> None:
    made = stand_in()
    pipe, x = bq.Pipeline.from_preset(preset), field(9000)
    if not any(stage.needs_bound for stage in pipe.graph.nodes.values()):
        x = np.arange(9000, dtype=np.float32)
        data = bytes(pipe.compress(x, target="numpy"))
    else:
        data = bytes(pipe.compress(x, 1e-3, target="numpy"))
    for n in [*range(0, len(data), 11), *range(len(data) - 40, len(data))]:
        cut = bytearray(data[:n])
        if n > 60:  # one that states its length, and whose checksums are right
            struct.pack_into("<QI", cut, 24, n, min(48 + int.from_bytes(cut[32:36], "little"), n) - 48)
            cut = bytearray(reseal(cut))
        for short in (data[:n], bytes(cut)):
            with pytest.raises(bq.BriquetteError):
                bq.decompress(short, target="cuda", fusion="auto")
    assert not [name for name in made.log if name.startswith("briquette_")]

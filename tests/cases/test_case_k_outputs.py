"""Cases K: outputs that do not fit are refused before anything is written, with both numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import casekit
import numpy as np
import pytest
from casekit import FUSED, REFERENCE
from click.testing import CliRunner

import briquette as bq
from briquette_cli.main import cli


def coded() -> bytes:
    return bytes(bq.compress(np.sin(np.arange(12_000) / 30).astype(np.float32).reshape(100, 120), 1e-3))


def raw() -> bytes:
    blob = bytes(bq.compress(np.random.default_rng(0).normal(size=(100, 120)).astype(np.float32), 1e-12))
    assert bq.info(blob)["raw"]
    return blob


SHAPES = [(99, 120), (101, 120), (100, 121), (120, 100), (12_000,), (1, 100, 120), ()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", [coded, raw])
def test_k1_outputs_of_another_shape(make: Callable[[], bytes], shape: tuple[int, ...]) -> None:
    out = np.full(shape, 7.5, np.float32)
    for way in casekit.ways((REFERENCE, FUSED)):
        with pytest.raises(bq.BriquetteError, match=rf"{re.escape(str(shape))}.*\(100, 120\)"):
            bq.decompress(make(), out=out, target=way.target)
    assert (out == 7.5).all()


@pytest.mark.parametrize("dtype", ["float64", "int32", ">f4", "uint8"])
@pytest.mark.parametrize("make", [coded, raw])
def test_k1_outputs_of_another_dtype(make: Callable[[], bytes], dtype: str) -> None:
    out = np.full((100, 120), 7, dtype)
    with pytest.raises(bq.BriquetteError, match=rf"{re.escape(str(np.dtype(dtype)))} of shape.*float32 of shape"):
        bq.decompress(make(), out=out)
    assert (out == 7).all()


def read_only() -> np.ndarray:
    out = np.zeros((100, 120), np.float32)
    out.flags.writeable = False
    return out


OUTPUTS: dict[str, Callable[[], object]] = {
    "fortran order": lambda: np.zeros((100, 120), np.float32, order="F"),
    "every other column": lambda: np.zeros((100, 240), np.float32)[:, ::2],
    "backwards": lambda: np.zeros((100, 120), np.float32)[::-1],
    "read-only": read_only,
    "broadcast": lambda: np.broadcast_to(np.zeros(120, np.float32), (100, 120)),
}


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("make", [coded, raw])
def test_k1_outputs_that_are_not_contiguous_and_writable(make: Callable[[], bytes], name: str) -> None:
    out = OUTPUTS[name]()
    with pytest.raises(bq.BriquetteError, match="must be C-contiguous and writable"):
        bq.decompress(make(), out=out)
    assert not np.asarray(out).any()


@pytest.mark.parametrize(
    "out", [[0.0] * 12_000, bytearray(48_000), memoryview(bytearray(48_000)), "out"], ids=lambda o: type(o).__name__
)
def test_k1_outputs_that_are_no_arrays(out: object) -> None:
    with pytest.raises(bq.BriquetteError, match=f"must be a NumPy array, not {type(out).__name__}"):
        bq.decompress(coded(), out=out)


@pytest.mark.parametrize("make", [coded, raw])
def test_k1_an_output_that_fits_is_filled_and_returned(make: Callable[[], bytes]) -> None:
    blob = make()
    buffer = np.full(3 + 100 * 120 * 4, 0xA5, np.uint8)
    out = buffer[3:].view(np.float32).reshape(100, 120)  # unaligned
    assert bq.decompress(blob, out=out) is out
    assert np.array_equal(casekit.bits(out), casekit.bits(bq.decompress(blob)))
    assert (buffer[:3] == 0xA5).all()


def test_k1_room_for_archives() -> None:
    x = np.sin(np.arange(12_000) / 30).astype(np.float32)
    blob = bq.compress(x, 1e-3)
    room = bytearray(b"\xa5" * (bq.max_archive_bytes(x) + 50))
    assert bq.compress(x, 1e-3, out=room) == blob
    assert room[-50:] == b"\xa5" * 50
    small = bytearray(b"\xa5" * x.nbytes)
    with pytest.raises(bq.BriquetteError, match=rf"holds {x.nbytes} bytes, the archive may need \d+"):
        bq.compress(x, 1e-3, out=small)
    assert small == b"\xa5" * x.nbytes
    for bad in (bytes(100_000), np.zeros((500, 500), np.uint8)[:, ::2], [0], "room", np.broadcast_to(np.uint8(0), 100_000)):
        with pytest.raises(bq.BriquetteError, match=r"out= must be a"):
            bq.compress(x, 1e-3, out=bad)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("target", ["numpy", "host"])
def test_k1_an_output_over_the_input_or_the_archive_changes_nothing(step: int, target: str) -> None:
    memory = np.zeros(200_000, np.uint8)
    x = memory[: 4 * 12_000 * step].view(np.float32)[::step]
    x[:] = np.sin(np.arange(12_000) / 30)
    before = memory.copy()
    for out in (memory, memoryview(memory)[40_000:]):
        with pytest.raises(bq.BriquetteError, match="out= overlaps the array to compress"):
            bq.compress(x, 1e-3, target=target, out=out)
    for blob in (bq.compress(x, 1e-3, target=target), bq.compress(x, 1e-12, target=target)):
        held = np.zeros(100_000, np.uint8)
        held[: len(blob)] = np.frombuffer(blob, np.uint8)
        with pytest.raises(bq.BriquetteError, match="out= overlaps the archive"):
            bq.decompress(held[: len(blob)], target=target, out=held[: 4 * 12_000].view(np.float32))
        assert bytes(held[: len(blob)]) == bytes(blob)
    assert (memory == before).all()


def test_k1_an_array_of_objects_gets_no_archive() -> None:
    kept = object()
    out = np.full(8_000, kept, object)
    with pytest.raises(bq.BriquetteError, match="which holds references to objects"):
        bq.compress(np.zeros(12_000, np.float32), 1e-3, out=out)
    assert all(item is kept for item in out)


@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize(("shape", "dtype"), [("100,120", "float32"), ("100,120", ">f8")])
def test_k1_raw_files_with_one_value_too_few_or_too_many(off: int, shape: str, dtype: str, tmp_path: Path) -> None:
    item = np.dtype(dtype).itemsize
    (tmp_path / "x.raw").write_bytes(bytes((12_000 + off) * item))
    done = CliRunner().invoke(
        cli,
        ["compress", str(tmp_path / "x.raw"), "--dtype", dtype, "--shape", shape, "--eb", "1e-3", "-o", str(tmp_path / "o.bq")],
    )
    assert done.exit_code == 2
    assert f"{(12_000 + off) * item:,} bytes" in done.stderr
    assert f"{12_000 * item:,}" in done.stderr
    assert not (tmp_path / "o.bq").exists()


def test_k1_the_original_of_verify_must_be_the_archives_kind() -> None:
    x = bq.decompress(coded())
    for other in (x.astype(np.float64), x[:-1], x.T, x.reshape(-1)):
        with pytest.raises(bq.BriquetteError, match=r"the original is .* the archive holds float32 of shape \(100, 120\)"):
            bq.verify(coded(), other)

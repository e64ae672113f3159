"""Cases G: memory orders, byte orders, read-only and mapped inputs, and dtypes that are none of ours."""

from __future__ import annotations

import re
from pathlib import Path

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE

import briquette as bq
from briquette_bitpack.plainrate import PlainRate
from briquette_lorenzo.lorenzo1d import Lorenzo1D
from briquette_quantize.linear import LinearQuantizer


def grid(rows: int, columns: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(rows * columns, dtype=dtype).reshape(rows, columns)


VIEWS = {
    "fortran (16,16)": lambda: np.asfortranarray(grid(16, 16)),
    "fortran (16,24)": lambda: np.asfortranarray(grid(16, 24)),
    "fortran (160,240)": lambda: np.asfortranarray(grid(160, 240)),
    "transposed": lambda: grid(160, 240).T,
    "negative strides": lambda: grid(160, 240)[::-1, ::-1],
    "one negative stride": lambda: grid(160, 240)[:, ::-1],
    "steps": lambda: grid(160, 240)[1::3, 2::5],
    "zero stride": lambda: np.broadcast_to(grid(1, 240), (160, 240)),
    "all zero strides": lambda: np.broadcast_to(np.float32(2.5), (160, 240)),
    "sliding windows": lambda: np.lib.stride_tricks.sliding_window_view(grid(1, 3000)[0], 16),
    "axes moved": lambda: np.moveaxis(np.arange(30_000, dtype=np.float32).reshape(30, 20, 50), 0, -1),
    "unaligned": lambda: np.frombuffer(b"\0" + grid(16, 240).tobytes(), np.uint8)[1:].view(np.float32).reshape(16, 240),
}


@pytest.mark.parametrize("name", VIEWS)
def test_g2_logical_order_is_kept(name: str) -> None:
    x = VIEWS[name]()
    before = x.copy()
    ordered = np.ascontiguousarray(x)
    for way in casekit.ways((REFERENCE, FUSED)):
        blob = bq.compress(x, 1e-3, target=way.target, fusion=way.fusion)
        assert blob == bq.compress(ordered, 1e-3, target=way.target, fusion=way.fusion)
        y = bq.decompress(blob, target=way.target)
        casekit.assert_bound(ordered, y, 1e-3)
        assert y.flags.c_contiguous
        assert bq.verify(blob, x, target=way.target).ok
    assert np.array_equal(x, before)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("preset", PRESETS)
def test_g3_either_byte_order(kind: str, preset: str) -> None:
    little = np.sin(np.arange(30_000) / 50).astype("<" + kind).reshape(100, 300)
    little.view("<u" + kind[1]).reshape(-1)[[3, 8191, 8192]] = 0x7FC12345 if kind == "f4" else 0x7FF8000000000001
    big = little.astype(">" + kind)
    for mode in ("abs", "rel"):
        trip = casekit.check(big, 1e-3, mode, (preset,))[preset]
        assert trip.restored.dtype == np.dtype(">" + kind)
        fresh = bq.decompress(trip.blob)
        assert fresh.dtype.byteorder == ">"
        assert np.array_equal(casekit.bits(fresh), casekit.bits(trip.restored))
        facts, others = bq.info(trip.blob), bq.info(bq.compress(little, 1e-3, mode, pipeline=preset))
        assert (facts.pop("byteorder"), others.pop("byteorder")) == (">", "<")
        assert facts == others, "byte order is noted, and changes nothing else"
        assert bq.verify(trip.blob, big).ok
        assert bq.verify(trip.blob, little).ok


def test_g3_raw_archives_keep_the_byte_order_too() -> None:
    x = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8).view(">f4")
    trip = casekit.check(x, 1e-9, coded=False)["fast"]
    assert trip.restored.tobytes() == x.tobytes()


def test_g3_integers_too() -> None:
    x = np.cumsum(np.random.default_rng(0).integers(-9, 9, 30_000)).astype(">i4")
    pipe = bq.chain(Lorenzo1D(region=256), PlainRate(segment=32))
    for way in casekit.ways((REFERENCE, FUSED)):
        made = pipe.run(x, target=way.target, fusion=way.fusion)
        assert not made.raw
        y = bq.decompress(made.archive, target=way.target)
        assert (y.dtype, y.tobytes()) == (x.dtype, x.tobytes())


def inputs(tmp_path: Path) -> dict[str, np.ndarray]:
    values = np.sin(np.arange(20_000) / 30).astype(np.float32).reshape(100, 200)
    read_only = values.copy()
    read_only.flags.writeable = False
    np.save(tmp_path / "x.npy", values)
    values.tofile(tmp_path / "x.f32")
    return {
        "read-only": read_only,
        "frombuffer": np.frombuffer(values.tobytes(), np.float32).reshape(values.shape),
        "mapped, read-only": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "mapped, copy on write": np.load(tmp_path / "x.npy", mmap_mode="c"),
        "mapped, writable": np.memmap(tmp_path / "x.f32", np.float32, "r+", shape=values.shape),
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_g4_inputs_are_left_alone_and_outputs_are_the_callers(preset: str, tmp_path: Path) -> None:
    for name, x in inputs(tmp_path).items():
        before, file = x.tobytes(), (tmp_path / "x.f32").read_bytes()
        for way in casekit.ways((REFERENCE, FUSED)):
            blob = bq.compress(x, 1e-3, pipeline=preset, target=way.target)
            y = bq.decompress(blob, target=way.target)
            assert type(y) is np.ndarray, name
            assert y.flags.writeable, name
            assert y.flags.owndata or y.base is not None
            assert not np.shares_memory(x, y), name
            y[...] = -7.0  # reaches neither the input nor the archive
            assert x.tobytes() == before, name
            assert (tmp_path / "x.f32").read_bytes() == file
            casekit.assert_bound(np.asarray(x), bq.decompress(blob, target=way.target), 1e-3)


def test_g4_archives_in_read_only_memory(tmp_path: Path) -> None:
    x = np.sin(np.arange(20_000) / 30).astype(np.float32)
    blob = bq.compress(x, 1e-3)
    held_raw = bq.compress(np.random.default_rng(0).normal(size=100).astype(np.float32), 1e-9)
    for archive in (blob, held_raw):
        (tmp_path / "a.bq").write_bytes(archive)
        for buffer in (archive, bytearray(archive), memoryview(archive), np.memmap(tmp_path / "a.bq", np.uint8, "r")):
            y = bq.decompress(buffer)
            assert y.flags.writeable
            y[:] = 0
        assert (tmp_path / "a.bq").read_bytes() == archive


class Bfloat16:
    """A tensor of a dtype that NumPy has not, in host memory, as other libraries hand it over."""

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("bfloat16 is not supported by NumPy")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


STRUCTURED = np.zeros(8, [("u", "f4"), ("v", "f4")])
REFUSED = {
    "longdouble": (np.zeros(8, np.longdouble), np.dtype(np.longdouble).name, "astype(numpy.float64)"),
    "complex64": (np.zeros(8, np.complex64), "complex64", "x.view(numpy.float32)"),
    "complex128": (np.zeros(8, np.complex128), "complex128", "x.view(numpy.float64)"),
    "object": (np.array([1.0, 2.0], object), "object", "astype(numpy.float64)"),
    "structured": (STRUCTURED, "u, v", "fields apart"),
    "masked": (np.ma.masked_less(np.arange(8.0), 3), "masked", "x.filled(value)"),
    "clongdouble": (np.zeros(8, np.clongdouble), np.dtype(np.clongdouble).name, "x.real and x.imag"),
    "datetime64": (np.zeros(8, "M8[s]"), "datetime64[s]", "view(numpy.int64)"),
    "timedelta64": (np.zeros(8, "m8[s]"), "timedelta64[s]", "view(numpy.int64)"),
    "text": (np.array(["a"]), "<U1", "supported are"),
    "a list": ([1.0, 2.0], "list", "numpy.asarray(x)"),
    "None": (None, "NoneType", "numpy.asarray(x)"),
    "bfloat16": (Bfloat16(), "Bfloat16", "bfloat16 is not supported by NumPy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_g5_refused_by_name_with_the_remedy(name: str) -> None:
    x, said, remedy = REFUSED[name]
    with pytest.raises(bq.BriquetteError, match=re.escape(said)) as caught:
        bq.compress(x, 1e-3)
    assert remedy in str(caught.value)
    assert isinstance(caught.value, (TypeError, ValueError))


def test_g5_a_dtype_from_another_library() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(bq.BriquetteError, match=r"float8_e5m2.*astype\(numpy\.float32\)"):
        bq.compress(np.zeros(8, ml_dtypes.float8_e5m2), 1e-3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_g5_a_quantizer_with_a_code_type_is_for_floating_point(dtype: str) -> None:
    pipe = bq.chain(LinearQuantizer(code_type="int32"), PlainRate(segment=32))
    with pytest.raises(bq.BriquetteError, match=rf"float64 values, not {dtype}; integers go to"):
        pipe.compress(np.arange(8).astype(dtype), 1e-3)


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_g5_integers_keep_their_dtype_in_a_chain_without_a_quantizer(dtype: str) -> None:
    low = -50 if dtype.startswith("int") else 0  # differences of unsigned codes are unsigned
    x = np.cumsum(np.random.default_rng(1).integers(low, 51, 20_000)).astype(dtype)
    pipe = bq.chain(Lorenzo1D(region=256), PlainRate(segment=32))
    blobs = set()
    compiled = dtype in ("int32", "uint16")  # two are enough to show that signedness and width are handed on
    for way in casekit.ways((REFERENCE, FUSED) if compiled else (REFERENCE,)):
        made = pipe.run(x, target=way.target, fusion=way.fusion)
        assert not made.raw
        assert made.ratio > 1.2
        blobs.add(bytes(made.archive))
        y = bq.decompress(made.archive, target=way.target)
        assert (y.dtype, y.tobytes()) == (x.dtype, x.tobytes())
    assert len(blobs) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_g5_floats_keep_their_dtype(dtype: str) -> None:
    assert bq.decompress(bq.compress(np.linspace(0, 1, 5000, dtype=dtype), 1e-3)).dtype == np.dtype(dtype)


def test_g5_scalars_and_subclasses() -> None:
    assert bq.decompress(bq.compress(np.float32(2.5), 1e-3)).shape == ()
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])
    y = bq.decompress(bq.compress(matrix, 1e-3))
    assert type(y) is np.ndarray
    assert y.shape == (2, 2)

"""What callers hand over: every misuse is a briquette error, and nothing of theirs is overwritten."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import Toy

import briquette as bq
from briquette.archive import Header, write_raw
from briquette.archive.layout import as_bytes
from briquette.arrays import as_output, as_source, as_writable_bytes, memory_for
from briquette.errors import OutOfMemory, PipelineError, UnsupportedInput, UsageError
from briquette.record import Bound
from briquette.selection import allocation_strategy, choose_target, fusion_mode, thread_count
from briquette.settings import MAX_THREADS

HUGE = pytest.param(10**5000, id="huge")  # Python makes no text of it


class Raises:
    """Raises `error` whatever it is asked for."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def _raise(self, *args: Any, **options: Any) -> Any:
        raise self.error


class BadDlpack(Raises):
    __dlpack__ = __dlpack_device__ = Raises._raise


class BadArray(Raises):
    __array__ = Raises._raise


class BadLookup(Raises):
    def __getattr__(self, name: str) -> Any:
        raise self.error


def raw_archive(x: np.ndarray) -> bytearray:
    header = Header("1", x.dtype.name, "<", x.shape, 8192).as_raw()
    return bytearray(write_raw(header, x))


# -- buffers to write an archive to -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "out",
    [
        np.empty(400, object),
        np.empty(400, "O,f8"),
        memoryview(np.empty(400, object)),
        (ctypes.py_object * 400)(),
        (ctypes.c_void_p * 400)(),
        (ctypes.c_char_p * 400)(),
        np.empty(400, "M8[s]"),
        np.empty(400, "m8[s]"),
        np.ma.zeros(4000, np.uint8),
        np.empty(8000, np.uint8)[::2],
        bytes(4000),
        "text",
        7,
        None,
    ],
    ids=lambda out: f"{type(out).__name__}-{getattr(out, 'dtype', '')}",
)
def test_a_buffer_of_other_than_bytes_gets_no_archive(out: Any) -> None:
    with pytest.raises(UsageError, match="out= must be"):
        as_writable_bytes(out, 1000)


@pytest.mark.parametrize("buffer", [np.empty(400, object), np.empty(400, "M8[s]"), np.ma.zeros(400, np.uint8), 7, [1, 2]])
def test_no_archive_is_read_from_other_than_bytes(buffer: Any) -> None:
    with pytest.raises(UsageError, match=r"cannot be in|cannot hold"):
        as_bytes(buffer)
    with pytest.raises(UsageError, match=r"cannot be in|cannot hold"):
        bq.info(buffer)


@pytest.mark.parametrize(
    "out",
    [bytearray(4000), np.empty(1000, ">u4"), np.empty(500), ctypes.create_string_buffer(4000), np.empty(250, "f8,f8")],
    ids=["bytearray", "big-endian", "float64", "ctypes", "records"],
)
def test_any_plain_memory_gets_one(out: Any) -> None:
    view = as_writable_bytes(out, 4000)
    view[:3] = b"abc"
    assert bytes(memoryview(out).cast("B")[:3]) == b"abc"


def test_a_field_called_o_is_no_object() -> None:
    assert as_writable_bytes(memoryview(np.empty(4, [("O", "f8"), ("P", "i4")])), 48).nbytes == 48


# -- overlaps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [lambda m: m, lambda m: memoryview(m)[64:], lambda m: m[1:].view(np.uint8)])
def test_an_output_over_the_input_is_refused(view: Callable[[Any], Any]) -> None:
    memory = np.zeros(40_000, np.uint8)
    x = memory[:4000].view(np.float32)
    with pytest.raises(UsageError, match="out= overlaps the array to compress"):
        as_writable_bytes(view(memory), 5000, x)
    assert as_writable_bytes(memory[4000:], 5000, x).nbytes == 36_000


def test_an_output_over_the_archive_is_refused() -> None:
    x = np.arange(2000, dtype=np.float32)
    blob = raw_archive(x)
    before = bytes(blob)
    start = len(blob) % 4
    out = np.frombuffer(blob, np.float32, 2000, start)
    with pytest.raises(UsageError, match="out= overlaps the archive"):
        bq.decompress(blob, out=out)
    assert blob == before


# -- arrays to decompress into ------------------------------------------------------------------------------


def test_a_masked_output_is_refused() -> None:
    with pytest.raises(UsageError, match="masked array"):
        as_output(np.ma.masked_all((3, 4), np.float32), np.dtype(np.float32), (3, 4))


def test_subclasses_of_arrays_receive_the_data(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    blob = raw_archive(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        matrix = np.matrix(np.zeros((3, 4), np.float32))
    for out in (matrix, np.memmap(tmp_path / "out", np.float32, "w+", shape=(3, 4)), np.zeros((3, 4), np.float32)):
        assert bq.decompress(blob, out=out) is out
        np.testing.assert_array_equal(np.asarray(out), x)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out", np.float32).reshape(3, 4), x)


# -- input arrays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("v"), OSError("o"), KeyError("k"), ZeroDivisionError(), RuntimeError("r")])
@pytest.mark.parametrize("kind", [BadDlpack, BadArray, BadLookup])
def test_an_array_that_fails_to_hand_over_its_data(kind: type[Raises], error: Exception) -> None:
    x = kind(error)
    with pytest.raises(UnsupportedInput, match=f"{kind.__name__} cannot be handed to NumPy: {type(error).__name__}") as found:
        as_source(x)
    assert found.value.__cause__ is error


def test_an_array_that_runs_out_of_memory_says_so() -> None:
    with pytest.raises(OutOfMemory):
        as_source(BadArray(MemoryError()))


def test_an_object_that_makes_a_masked_array_loses_no_mask() -> None:
    class Table:
        def __array__(self, *args: Any, **options: Any) -> np.ndarray:
            return np.ma.masked_equal(np.arange(3.0), 1)

    with pytest.raises(UnsupportedInput, match="masked"):
        as_source(Table())


# -- options ------------------------------------------------------------------------------------------------


class NotANumber:
    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "eb",
    [10**400, HUGE, -(10**400), True, False, np.True_, np.array(True), NotANumber(), [1], "a", None, 1j, math.nan],
)
def test_a_bound_that_is_no_number(eb: Any) -> None:
    with pytest.raises(UsageError, match=r"^error bound "):
        Bound(eb)


@pytest.mark.parametrize("mode", [[], {}, None, 1, b"abs", "ABS", ["abs"]])
def test_a_mode_that_is_none(mode: Any) -> None:
    with pytest.raises(UsageError, match=r"mode .* is unknown; use one of abs, rel, noa"):
        Bound(1.0, mode)


@pytest.mark.parametrize("eb", [1, np.float32(0.5), np.float64(0.5), np.array(0.5), np.int8(3)])
def test_any_number_is_a_bound(eb: Any) -> None:
    assert Bound(eb).eb == float(eb)


@pytest.mark.parametrize("pipeline", [123, None, b"fast", ["fast"], {}, HUGE, bq.Pipeline])
def test_what_is_no_pipeline(pipeline: Any) -> None:
    with pytest.raises(UsageError, match="give a preset's name"):
        bq.compress(np.zeros(3), 1.0, pipeline=pipeline)
    for load in (bq.Pipeline.from_toml, bq.Pipeline.from_preset):
        with pytest.raises(UsageError, match=f"is a {type(pipeline).__name__}"):
            load(pipeline)


@pytest.mark.parametrize("value", [1, 0, b"host", [], ["x"], (), np.zeros(2), True])
def test_names_of_options_are_strings(value: Any) -> None:
    blob = raw_archive(np.zeros(3))
    for option, check in (("target", choose_target), ("fusion", fusion_mode), ("allocation", allocation_strategy)):
        with pytest.raises(UsageError, match=f"^{option}=.* is a {type(value).__name__}; give a name"):
            check(value)
        with pytest.raises(UsageError, match=f"^{option}="):
            bq.compress(np.zeros(3), 1.0, **{option: value})
        with pytest.raises(UsageError, match=f"^{option}="):
            bq.decompress(blob, **{option: value})


@pytest.mark.parametrize("threads", [0, -1, MAX_THREADS + 1, HUGE, True, np.True_, 1.0, "2", np.float64(2), [1]])
def test_threads_that_are_no_count(threads: Any) -> None:
    with pytest.raises(UsageError, match="threads must be an integer in 1 to 1024, not "):
        thread_count(None, threads)
    with pytest.raises(UsageError, match="threads must be"):
        bq.compress(np.zeros(3), 1.0, target="numpy", threads=threads)
    with pytest.raises(UsageError, match="threads must be"):
        bq.decompress(raw_archive(np.zeros(3)), threads=threads)


@pytest.mark.parametrize("threads", [1, np.int64(2), np.uint8(3), MAX_THREADS])
def test_integers_of_any_kind_are_counts(threads: Any) -> None:
    assert thread_count(None, threads) == 1
    x = np.zeros(3)
    np.testing.assert_array_equal(bq.decompress(raw_archive(x), threads=threads), x)


@pytest.mark.parametrize("part", [np.int64(3), 3, HUGE, "a", (slice(1),), slice("a", 2), slice(1.5), slice(0, 9, 2)])
@pytest.mark.parametrize("option", ["region", "flat"])
def test_a_part_that_is_no_slice(option: str, part: Any) -> None:
    with pytest.raises(UsageError, match=f"^{option}="):
        bq.decompress(raw_archive(np.zeros(30)), **{option: part})


def test_files_that_are_no_pipelines(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes('title = "é"\n'.encode("latin-1"))
    for path in (
        tmp_path / "latin.toml",
        tmp_path / "none.toml",
        tmp_path,
        tmp_path / "a\0b.toml",
        "a\0b.toml",
        "x" * 5000 + ".toml",
    ):
        with pytest.raises(UsageError, match=r"^cannot read the pipeline "):
            bq.Pipeline.from_toml(path)
        with pytest.raises(UsageError, match=r"^cannot read the pipeline "):
            bq.compress(np.zeros(3), 1.0, pipeline=path)


@pytest.mark.parametrize("name", ["a\xa0b", "a\tb", "a\x7f", "\u200b", "\ud800", "a\nb", "n" * 256])
def test_node_names_that_no_archive_holds(name: str) -> None:
    with pytest.raises(PipelineError, match="node name"):
        bq.Pipeline().add(Toy(), name)
    pipe = bq.Pipeline()
    assert pipe.add(Toy(), "n" * 255) == "n" * 255
    assert pipe.add(Toy(), "Größe 2") == "Größe 2"


@pytest.mark.parametrize("name", [1, b"a", ["a"], None])
def test_node_names_and_ends_of_edges_are_strings(name: Any) -> None:
    pipe = bq.Pipeline()
    with pytest.raises(PipelineError, match=f"is a {type(name).__name__}"):
        pipe.add(Toy(), name)
    with pytest.raises(PipelineError, match=f"is a {type(name).__name__}"):
        pipe.connect("in", name)


def test_a_pipelines_bound_is_a_bound() -> None:
    with pytest.raises(UsageError, match="give a Bound"):
        bq.Pipeline(bound=1e-3)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["foo", 3, object()])
def test_what_is_no_dtype(dtype: Any) -> None:
    pipe = bq.chain(Toy())
    for ask in (pipe.plan, pipe.compile):
        with pytest.raises(UnsupportedInput, match="is no dtype"):
            ask(dtype, "numpy")


# -- memory -------------------------------------------------------------------------------------------------


def test_memory_that_runs_out_is_a_briquette_error_that_names_the_size() -> None:
    with pytest.raises(OutOfMemory, match="the array takes 12345 bytes") as found, memory_for(12345, "the array"):
        raise MemoryError("no")
    assert isinstance(found.value, MemoryError)
    assert isinstance(found.value, bq.BriquetteError)
    with pytest.raises(OutOfMemory, match=r"^own words$"), memory_for(1, "the array"):
        raise OutOfMemory("own words")


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited as Linux does")
def test_an_archive_larger_than_memory_says_so(tmp_path: Path) -> None:
    count = 64 << 20
    path = tmp_path / "big.bq"
    path.write_bytes(raw_archive(np.zeros(count, np.uint8)))
    program = f"""
        import mmap, resource
        import numpy as np, briquette as bq
        from briquette.errors import OutOfMemory
        with open({str(path)!r}, "rb") as file:
            blob = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert bq.decompress(blob, flat=slice(0, 5)).tolist() == [0] * 5
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
        try:
            bq.decompress(blob)
        except OutOfMemory as exc:
            assert "{count} bytes" in str(exc), exc
            print("said so")
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "said so\n", done.stderr

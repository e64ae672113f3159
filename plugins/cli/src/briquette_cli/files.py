"""Array files and archives: read after checking them, written all at once or not at all."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from briquette.errors import ArchiveError, UnsupportedInput, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ARCHIVE_SUFFIX = ".bq"
_WRITE_BYTES = 1 << 24
_NPY_MAGIC = b"\x93NUMPY"


class BadInput(ArchiveError):
    """An input file whose bytes are not what its name says."""


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the shape written as ``330,360`` or ``330x360``; raise `UsageError` naming it."""
    parts = text.replace("x", ",").strip(",").split(",")
    if not all(p.strip().isascii() and p.strip().isdigit() for p in parts):
        raise UsageError(f"shape {text!r} is not a list of sizes; write it as 330,360")
    return tuple(int(p) for p in parts)


def parse_dtype(text: str) -> np.dtype[Any]:
    """Return the dtype `text` names (``float32``, ``<f8``, ``>f4``); raise `UsageError` naming it."""
    from briquette.ports import numpy_dtype

    try:
        found = numpy_dtype(text)
    except (TypeError, ValueError, SyntaxError):
        raise UsageError(f"dtype {text!r} is unknown; use a NumPy name such as float32, float64, >f4, or bfloat16") from None
    if found.hasobject or found.itemsize == 0 or found.names:
        raise UsageError(f"dtype {text!r} has no fixed-size numbers in it; use float32, float64, >f4, ...")
    return found


def read_array(path: Path, dtype: str | None = None, shape: str | tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return the array in a file, memory-mapped where it can be.

    Parameters
    ----------
    path : Path
        A ``.npy`` file, or raw values in C order.
    dtype : str, optional
        Of a raw file, which needs it, and of a ``.npy`` file only where it is bfloat16, which such files do not name.
    shape : str or tuple of int, optional
        Of a raw file; one dimension by default.

    Raises
    ------
    UsageError
        For a raw file whose size is not that of dtype and shape (both numbers are named), or options that do not apply.
    BadInput
        For a ``.npy`` file that is damaged, or is none.
    """
    if path.suffix == ".npy":
        array = _read_npy(path)
        if array.dtype == "V2":
            if dtype is None:
                raise UsageError(f"{path.name} holds values of two bytes without a type; if it is bfloat16, say --dtype bfloat16")
            if dtype == "bfloat16" and shape is None:
                return array.view(parse_dtype(dtype))
        if dtype is not None or shape is not None:
            raise UsageError(f"--dtype and --shape describe raw files; {path.name} has both in its header")
        return array
    if dtype is None:
        raise UsageError(f"{path} is not a .npy file: say what it holds with --dtype (and --shape)")
    return _read_raw(path, parse_dtype(dtype), parse_shape(shape) if isinstance(shape, str) else shape)


def _read_npy(path: Path) -> NDArray[Any]:
    import numpy as np

    with open(path, "rb") as file:
        magic = file.read(len(_NPY_MAGIC))
    if magic != _NPY_MAGIC:
        begins = f"begins with {magic!r}" if magic else "is empty"
        raise BadInput(f"{path} is not a .npy file: it {begins}, and not with {_NPY_MAGIC!r}")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, UnicodeDecodeError) as exc:
        if "object" in str(exc).lower():
            raise UnsupportedInput(f"{path} holds Python objects; convert it with x.astype(numpy.float64)") from exc
        # an array without elements cannot be mapped, and some NumPy versions refuse to try
        try:
            array = np.load(path, allow_pickle=False)
        except Exception as again:
            raise BadInput(f"{path} is a damaged .npy file: {again}") from again
    return array


def _read_raw(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> NDArray[Any]:
    import numpy as np

    size = path.stat().st_size
    if shape is None:
        if size % dtype.itemsize:
            raise UsageError(f"{path} holds {size:,} bytes, no whole number of {dtype} values of {dtype.itemsize} bytes")
        shape = (size // dtype.itemsize,)
    needed = math.prod(shape) * dtype.itemsize
    if size != needed:
        raise UsageError(
            f"{path} holds {size:,} bytes, {dtype} of shape {shape} takes {needed:,}: "
            f"{abs(size - needed):,} bytes too {'many' if size > needed else 'few'}; check --dtype and --shape"
        )
    if not needed:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape)


def read_archive(path: Path) -> memoryview:
    """Return the bytes of an archive, mapped, so that a look at its header does not read all of it."""
    with open(path, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return memoryview(file.read())
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:  # an empty file
            return memoryview(b"")


def check_output(output: Path, *inputs: Path, force: bool) -> None:
    """Refuse an output that is one of the inputs, a directory, or (without `force`) there already."""
    if output.is_dir():
        raise UsageError(f"the output {output} is a directory; name a file with -o")
    if not output.parent.is_dir():
        raise UsageError(f"the output's directory {output.parent} does not exist")
    if not output.exists():
        return
    for path in inputs:
        if os.path.samefile(path, output):
            raise UsageError(f"the output {output} is the input; name another file with -o")
    if output.is_file() and not force:
        raise UsageError(f"the output {output} exists; name another one with -o, or --force replaces it")


@contextlib.contextmanager
def atomic_writer(output: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes its name when the block ends well, and vanishes otherwise; errors name `output`."""
    if output.exists() and not output.is_file():  # a device or a pipe cannot be renamed over
        with open(output, "wb") as file:
            yield file
        return
    final = Path(os.path.realpath(output))
    temporary = final.with_name(f".{final.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, final)
    except BaseException as exc:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(exc, OSError) and exc.errno is not None:  # the temporary file's name means nothing to people
            raise OSError(exc.errno, f"cannot write: {exc.strerror}", str(output)) from exc
        raise


def write_bytes(output: Path, data: Any) -> None:
    """Write a buffer to `output`, all at once or not at all."""
    view = memoryview(data).cast("B")
    with atomic_writer(output) as file:
        for at in range(0, view.nbytes, _WRITE_BYTES):
            file.write(view[at : at + _WRITE_BYTES])


def write_array(output: Path, array: NDArray[Any]) -> None:
    """Write `array` as ``.npy`` where the name ends so, else raw in C order and in its own byte order."""
    import numpy as np

    if output.suffix != ".npy":
        write_bytes(output, np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return
    with atomic_writer(output) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)

"""Parts of archives decoded on a GPU: from bytes, and of archives that stay in its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import briquette as bq

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="device arrays come from CuPy here")

CHUNK = 8192
BLOCK = 64 * CHUNK


def field(n: int, dtype: str, outliers: bool) -> np.ndarray[Any, Any]:
    x = np.cumsum(np.random.default_rng(n).standard_normal(n) / 8).astype(np.int64 if "int" in dtype else dtype).astype(dtype)
    if outliers and x.dtype.kind == "f":
        x[::701] = np.nan
        x[4 * CHUNK : 5 * CHUNK] = np.inf
        x[-3:] = 2e37 if x.itemsize > 2 else 6e4
    return x


def parts(n: int) -> list[slice]:
    rng = np.random.default_rng()
    edges = [
        slice(0, 1),
        slice(CHUNK - 1, CHUNK + 1),
        slice(CHUNK, 3 * CHUNK),
        slice(4 * CHUNK + 9, 5 * CHUNK + 9),
        slice(BLOCK - 1, BLOCK + 1),
        slice(BLOCK, BLOCK + CHUNK),
        slice(BLOCK + 3, None),
        slice(-1, None),
        slice(9, 9),
        slice(None),
    ]
    return edges + [slice(*sorted(rng.integers(0, n + 1, 2).tolist())) for _ in range(12)]


@pytest.mark.parametrize("fusion", ["auto", "off"])
@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int64"])
@pytest.mark.parametrize("preset", ["fast", "planes", "zigzag"])
def test_parts_are_slices_of_the_whole(preset: str, dtype: str, outliers: bool, fusion: str) -> None:
    x = field(BLOCK + 3 * CHUNK + 333, dtype, outliers)
    eb = {"float16": 0.1, "uint8": 8, "int64": 8}.get(dtype, 1e-3)  # coded: an archive on the device holds nothing raw
    archive = bq.compress_on_device(cupy.asarray(x), eb, pipeline=preset, fusion=fusion)
    blob = archive.to_bytes()
    whole = bq.decompress(blob, target="numpy")
    for part in parts(x.size):
        expected = whole[part]
        assert bq.decompress(blob, flat=part, target="cuda", fusion=fusion).tobytes() == expected.tobytes(), part
        found = cupy.asarray(archive.decompress(flat=part))
        assert found.shape == expected.shape
        assert cupy.asnumpy(found).tobytes() == expected.tobytes(), part
        room = cupy.full(expected.size + 2, 7, dtype)
        out = room[1:-1]
        assert archive.decompress(out, region=part) is out
        assert cupy.asnumpy(out).tobytes() == expected.tobytes(), part
        assert room[[0, -1]].tolist() == [7, 7]


def test_regions_keep_the_other_axes() -> None:
    x = field(90 * 70 * 30, "float32", True).reshape(90, 70, 30)
    archive = bq.compress_on_device(cupy.asarray(x), 1e-3)
    whole = bq.decompress(archive.to_bytes(), target="numpy")
    for part in (slice(10, 20), slice(-4, None), slice(3, 4), slice(5, 5), slice(None)):
        found = archive.decompress(region=part)
        assert found.shape == whole[part].shape
        assert cupy.asnumpy(cupy.asarray(found)).tobytes() == whole[part].tobytes()
    with pytest.raises(bq.BriquetteError, match="out= holds 5"):
        archive.decompress(cupy.zeros(5, cupy.float32), region=slice(0, 1))


def test_a_part_outlives_its_archive() -> None:
    archive = bq.compress_on_device(cupy.asarray(field(200_000, "float32", True)), 1e-3)
    whole = bq.decompress(archive.to_bytes(), target="numpy")
    found = cupy.asarray(archive.decompress(flat=slice(70_001, 70_013)))
    del archive
    cupy.zeros(1 << 22, cupy.float32)
    assert cupy.asnumpy(found).tobytes() == whole[70_001:70_013].tobytes()

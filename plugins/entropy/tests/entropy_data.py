"""Streams for the coders' tests, and the coders' NumPy forms on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import briquette as bq

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
#: around an archive chunk of 8192 elements
SIZES = (1, 2, 7, 8191, 8192, 8193, 20_001)


def streams(dtype: str, size: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield streams of every kind that the formats tell apart, with their names."""
    rng = np.random.default_rng([size, *dtype.encode()])
    info = np.iinfo(dtype)
    yield "zeros", np.zeros(size, dtype)
    yield "noise", rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    sparse = rng.geometric(0.02, size) * (rng.random(size) < 0.1)
    yield "sparse", sparse.clip(info.min, info.max).astype(dtype)
    yield "steps", np.repeat(rng.integers(0, 100, size), rng.integers(1, 40, size))[:size].astype(dtype)
    wide = rng.standard_cauchy(size) * 50
    yield "wide", wide.clip(max(info.min, -(2.0**62)), min(info.max, 2.0**62)).astype(dtype)
    edges = np.array([info.min, info.max, 0, 1, info.max - 1], dtype)
    yield "edges", np.where(rng.random(size) < 0.05, rng.choice(edges, size), np.array(0, dtype))
    constant = np.full(size, 5, dtype)
    constant[size // 2] = 0
    yield "constant", constant


def archive_of(pipe: bq.Pipeline, x: NDArray[Any], target: str = "numpy", **options: Any) -> bytes:
    """Return the archive of `x` without a bound."""
    return bytes(bq.compress(x, pipeline=pipe, target=target, **options))

"""Inputs: what a stream of a type may hold, from smooth fields to the values that arithmetic trips over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.ports import FLOAT_DTYPES, numpy_dtype

Array = NDArray[Any]

#: all randomness of the kit comes from this and the size asked for
SEED: Final = 20260


def is_float(dtype: str) -> bool:
    return dtype in FLOAT_DTYPES


def bits(x: Array) -> Array:
    """Return the elements as unsigned integers, flat."""
    return np.ascontiguousarray(x).reshape(-1).view(f"u{x.dtype.itemsize}")


def same(a: Array, b: Array) -> bool:
    """Whether two arrays have the same type and the same bits."""
    return a.dtype == b.dtype and a.size == b.size and np.array_equal(bits(a), bits(b))


def poisoned(count: int, dtype: Any) -> Array:
    """Return an array of bytes that no result has: what a run must overwrite."""
    out = np.empty(count, dtype)
    out.view(np.uint8)[:] = 0xA5
    return out


def smooth(n: int, dtype: str, seed: int = SEED) -> Array:
    """Return a smooth field, of integers one of a few thousand different values."""
    rng = np.random.default_rng(seed + n)
    walk = np.cumsum(rng.normal(0.0, 0.02, n)) + np.sin(np.arange(n) / 30.0)
    if is_float(dtype):
        return walk.astype(numpy_dtype(dtype))
    scaled = np.rint(walk * (20.0 if np.dtype(dtype).itemsize == 1 else 900.0)).astype(np.int64)
    return scaled.astype(dtype)


def ragged(n: int, dtype: str, seed: int = SEED) -> Array:
    """Return elements of every magnitude, a magnitude for each stretch, with stretches of zeros, jumps and repetitions."""
    rng = np.random.default_rng(seed + n + 1)
    if is_float(dtype):
        kind = numpy_dtype(dtype)
        span = 6 if kind.itemsize == 2 else 30
        x = rng.standard_normal(n) * np.exp2(np.repeat(rng.uniform(-span, span / 2, n // 37 + 1), 37)[:n])
    else:
        width = 8 * np.dtype(dtype).itemsize
        words = rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True)
        keep = np.repeat(rng.integers(1, width + 1, n // 33 + 1), 33)[:n].astype(np.uint64)
        x = words >> (np.uint64(64) - keep)
    quiet = np.repeat(rng.random(n // 50 + 1) < 0.2, 50)[:n]
    x = np.where(quiet, x.dtype.type(0), x)
    again = np.repeat(rng.random(n // 41 + 1) < 0.15, 41)[:n]
    x = np.where(again, x[np.maximum(np.arange(n) // 41 * 41, 0)] if n else x, x)
    if is_float(dtype):
        return x.astype(numpy_dtype(dtype))
    narrow = x.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
    return np.where(rng.random(n) < 0.5, narrow, (~narrow.view(f"u{narrow.itemsize}")).view(dtype)).astype(dtype)


def special(n: int, dtype: str, seed: int = SEED) -> Array:
    """Return a smooth field sown with NaN of several payloads, infinities, -0.0, denormals and the ends of the type."""
    x = smooth(n, dtype, seed)
    if not n:
        return x
    rng = np.random.default_rng(seed + n + 2)
    at = rng.integers(0, n, 3 + n // 60)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    patterns = _patterns(dtype, unsigned)
    x.view(unsigned)[at] = patterns[rng.integers(0, patterns.size, at.size)]
    if n > 90:  # a run of one value, and the ends of the stream
        x.view(unsigned)[n // 2 : n // 2 + 40] = patterns[0]
        x.view(unsigned)[[0, n - 1]] = patterns[[-1, 1 % patterns.size]]
    return x


def _patterns(dtype: str, unsigned: np.dtype[Any]) -> Array:
    width = 8 * unsigned.itemsize
    ends = [0, 1, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, (1 << (width - 1)) + 1]
    if not is_float(dtype):
        return np.array(ends, unsigned)
    kind = numpy_dtype(dtype)
    mantissa = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype]
    infinity = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    quiet = infinity | 1 << (mantissa - 1)
    found = [quiet, quiet | 5, quiet | 1 << (width - 1), infinity, infinity | 1 << (width - 1), infinity - 1]
    found += [(infinity - 1) | 1 << (width - 1), 1, 1 << mantissa, 1 << (width - 1)]
    small = np.array([0.5, -0.5, 1.5, 2.5, 1e-3, 3e4], kind).view(unsigned).tolist()
    return np.array([*found, *small], unsigned)


def sown(x: Array, values: Sequence[float]) -> Array:
    """Return `x` with each of some values here and there: alone, and in a run."""
    rng = np.random.default_rng(SEED + x.size)
    for value in values:
        for at in rng.integers(0, max(x.size, 1), 2 + x.size // 200):
            x[at : at + int(rng.choice([1, 9, 60]))] = value
    return x


def ties(n: int, dtype: str, step: float) -> Array:
    """Return values at and around the halves between multiples of `step`, where rounding rules part."""
    k = np.arange(n, dtype=np.float64) - n // 2
    x = ((k + 0.5) * step).astype(numpy_dtype(dtype))
    unsigned = x.view(f"u{x.dtype.itemsize}")
    unsigned += (np.arange(n) % 3).astype(unsigned.dtype)  # the tie itself, and the next values away from zero
    return x


def powers(n: int, dtype: str, step: float) -> Array:
    """Return multiples of `step` by powers of two and their neighbours, of both signs: codes at the ends of a number of bits."""
    wide = 52 if is_float(dtype) else 8 * np.dtype(dtype).itemsize - 1
    codes = np.array([s * ((1 << j) + d) for j in range(wide) for d in (-1, 0, 1) for s in (1, -1)], object)
    if is_float(dtype):
        values = (codes.astype(np.float64) * step).astype(numpy_dtype(dtype))
    else:
        ends = np.iinfo(dtype)
        whole = [min(max(int(c) * int(step) + int(step) // 2 + d, int(ends.min)), int(ends.max)) for c in codes for d in (0, 1)]
        values = np.array(whole, dtype)
    return np.resize(values[np.random.default_rng(SEED).permutation(values.size)], n)


def constant(n: int, dtype: str) -> Array:
    return np.full(n, 7, numpy_dtype(dtype))


def noise(n: int, dtype: str, seed: int = SEED) -> Array:
    """Return elements of any bits (floats: finite ones)."""
    rng = np.random.default_rng(seed + n + 3)
    kind = numpy_dtype(dtype)
    raw = rng.integers(0, 256, n * kind.itemsize, dtype=np.uint8).view(f"u{kind.itemsize}").view(kind)
    return np.where(np.isfinite(raw), raw, kind.type(1)) if is_float(dtype) else raw


def first_difference(a: Array, b: Array) -> str:
    """Return in words where two arrays differ first, or how their sizes and types do."""
    if a.dtype != b.dtype or a.size != b.size:
        return f"{a.size} elements of {a.dtype} against {b.size} of {b.dtype}"
    at = np.flatnonzero(bits(a) != bits(b))
    if not at.size:
        return "nowhere"
    i = int(at[0])
    return f"{at.size} of {a.size} elements, the first at {i}: {a.reshape(-1)[i]!r} against {b.reshape(-1)[i]!r}"

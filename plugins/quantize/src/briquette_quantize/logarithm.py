"""Logarithm and power of two by fixed steps: the same bits on every machine, without a mathematics library.

Products, sums, one quotient and integer operations on the bits, in the order written here; `cuda/logarithm.cuh` has the same.
Results are approximations (to 2e-10 for float32 data, 1e-14 for float64 data), and nothing relies on more: a quantizer
checks what it decodes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: 2 / (ln 2 (2 i + 1)): log2(m) = s (LOG[0] + s**2 (LOG[1] + ...)) where s = (m - 1) / (m + 1)
LOG: Final = tuple(
    map(
        float.fromhex,
        (
            "0x1.71547652b82fep+1",
            "0x1.ec709dc3a03fdp-1",
            "0x1.2776c50ef9bfep-1",
            "0x1.a61762a7aded9p-2",
            "0x1.484b13d7c02a9p-2",
            "0x1.0c9a84994022dp-2",
            "0x1.c68f568d31760p-3",
            "0x1.89f3b1694cffep-3",
            "0x1.5b9ac9b743f0dp-3",
        ),
    )
)
#: ln(2)**i / i!
EXP: Final = tuple(
    map(
        float.fromhex,
        (
            "0x1.0000000000000p+0",
            "0x1.62e42fefa39efp-1",
            "0x1.ebfbdff82c58fp-3",
            "0x1.c6b08d704a0c0p-5",
            "0x1.3b2ab6fba4e77p-7",
            "0x1.5d87fe78a6731p-10",
            "0x1.430912f86c787p-13",
            "0x1.ffcbfc588b0c7p-17",
            "0x1.62c0223a5c824p-20",
            "0x1.b5253d395e7c4p-24",
            "0x1.e4cf5158b8ecap-28",
            "0x1.e8cac7351bb25p-32",
            "0x1.c3bd650fc2986p-36",
        ),
    )
)
#: terms for data of 4 and of 8 bytes
LOG_TERMS: Final = {4: 6, 8: 9}
EXP_TERMS: Final = {4: 9, 8: 13}
#: a significand is taken from [sqrt(1/2), sqrt(2)): the bits of the lower end
_LOW: Final = {4: 0x3F3504F3, 8: 0x3FE6A09E667F3BCD}
#: powers beyond which every value is zero or infinite
_MOST: Final = {4: 1000.0, 8: 1100.0}


def log2(magnitudes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the logarithms of finite values above 0, float32 or float64; of others a finite number without meaning."""
    size = magnitudes.dtype.itemsize
    kind, fraction = (np.int32, 23) if size == 4 else (np.int64, 52)
    real = magnitudes.dtype.type
    low = kind(_LOW[size])
    small = magnitudes < np.finfo(real).smallest_normal
    bits = magnitudes.view(kind)
    if small.any():
        with np.errstate(over="ignore"):  # of those that are not small
            bits = np.where(small, magnitudes * real(2.0 ** (fraction + 1)), magnitudes).view(kind)
    bits = bits - low
    exponent = bits >> fraction
    exponent -= np.where(small, kind(fraction + 1), kind(0))
    bits &= kind((1 << fraction) - 1)
    bits += low
    s = bits.view(real).astype(np.float64)
    s = (s - 1.0) / (s + 1.0)
    z = s * s
    terms = LOG_TERMS[size]
    p = z * LOG[terms - 1]
    for c in LOG[terms - 2 : 0 : -1]:
        p += c
        p *= z
    p += LOG[0]
    p *= s
    p += exponent
    return p


def exp2(powers: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return 2 to these powers in `dtype`, rounded once more on the way there; infinite, or 0, where that does not fit."""
    most = _MOST[dtype.itemsize]
    f = np.clip(powers, -most, most)
    whole = np.rint(f)
    f -= whole
    terms = EXP_TERMS[dtype.itemsize]
    p = f * EXP[terms - 1]
    for c in EXP[terms - 2 : 0 : -1]:
        p += c
        p *= f
    p += EXP[0]
    n = whole.astype(np.int64)
    half = n >> 1  # a factor of 2**n may be beyond float64; the first product is exact
    p *= ((half + 1023) << 52).view(np.float64)
    p *= ((n - half + 1023) << 52).view(np.float64)
    return p.astype(dtype)

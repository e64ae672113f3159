"""Bit-packed runs: values of one width one after another, padded with zero bits to whole 32-bit words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError

from ._chunks import Bytes, Reader


def packed_bytes(count: int, width: int) -> int:
    """Return the bytes of `count` values of `width` bits."""
    return -(-count * width // 32) * 4


def pack(values: NDArray[Any], width: int) -> Bytes:
    """Return the low `width` bits of each value, packed from the least significant bit on."""
    bits = np.unpackbits(values.view(np.uint8).reshape(values.size, values.itemsize), axis=1, bitorder="little")[:, :width]
    packed = np.packbits(bits.reshape(-1), bitorder="little")
    return np.pad(packed, (0, packed_bytes(values.size, width) - packed.size))


def unpack(coded: Reader, count: int, width: int, word: int) -> NDArray[Any]:
    """Return `count` values of `width` bits as numbers of `word` bytes; raise `ArchiveError` for padding that is not zero."""
    bits = np.unpackbits(coded.take(packed_bytes(count, width)), bitorder="little")
    if bits[count * width :].any():
        raise ArchiveError(f"bits are set behind {count} packed values of {width} bits")
    wide = np.zeros((count, 8 * word), np.uint8)
    wide[:, :width] = bits[: count * width].reshape(count, width)
    return np.packbits(wide, axis=1, bitorder="little").reshape(-1).view(f"<u{word}")

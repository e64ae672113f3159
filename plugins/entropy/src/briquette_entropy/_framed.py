"""Chunked values as streams of bytes: how many words each chunk has stands before what codes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from briquette.errors import DeclarationError
from briquette.ports import Chunked, Words

from ._chunks import damaged


def most_framed(chunk: int) -> int:
    """Return the most words of a chunk of `chunk` elements that are taken: twice those of the widest elements, and more."""
    return 4 * chunk + 64


def check_room(value: Chunked, chunk: int, name: str) -> None:
    """Raise `DeclarationError` where a chunk has more words than any coder has reason to write."""
    if value.sizes.size and int(value.sizes.max()) > most_framed(chunk):
        raise DeclarationError(
            f"stage {name!r} takes chunks of up to {most_framed(chunk)} words, not of {int(value.sizes.max())}"
        )


def bytes_of(value: Chunked) -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of each chunk that has any."""
    data = np.ascontiguousarray(value.words).view(np.uint8)
    at = 0
    for size in value.sizes[value.sizes > 0].tolist():
        yield data[at : at + 4 * size]
        at += 4 * size


def framed(sizes: Words, coded: Chunked) -> Chunked:
    """Return coded chunks with the words they had before, `sizes`, in front; chunks without words stay so."""
    some = sizes > 0
    at = (np.cumsum(coded.sizes, dtype=np.int64) - coded.sizes)[some]
    return Chunked((coded.sizes + some).astype(np.uint32), np.insert(coded.words, at, sizes[some]))


def unframed(value: Chunked, chunk: int, name: str) -> tuple[Words, Chunked]:
    """Return the words that each chunk had, and the coded chunks; raise `ArchiveError` for sizes that none can have."""
    some = value.sizes > 0
    at = (np.cumsum(value.sizes, dtype=np.int64) - value.sizes)[some]
    sizes: Any = np.zeros(value.sizes.size, np.uint32)
    sizes[some] = value.words[at]
    if not sizes[some].all() or (sizes > most_framed(chunk)).any():
        raise damaged(name)
    return sizes, Chunked((value.sizes - some).astype(np.uint32), np.delete(value.words, at))

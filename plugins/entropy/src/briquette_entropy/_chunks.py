"""What coders of whole archive chunks share: chunks that are stored as they are, and chunked values read piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError, PipelineError
from briquette.ports import INTEGER_DTYPES, Chunked, PortType, PortValue, Words
from briquette.stage import Scope


def coded_types(name: str, inputs: Mapping[str, PortType], words: bool = False) -> Mapping[str, PortType]:
    """Return a chunked output for a stream of integers, and with `words` for a chunked input; else raise `PipelineError`."""
    given = inputs["in"]
    if words and given.layout == "chunked":
        return {"out": PortType(given.dtype, "chunked")}
    if given.layout != "stream" or given.dtype not in INTEGER_DTYPES:
        raise PipelineError(f"stage {name!r} takes a stream of integers, not {given}; quantize the data first")
    return {"out": PortType(given.dtype, "chunked")}


def most_words(types: Mapping[str, PortType], chunk: int) -> int:
    """Return the words of a chunk that is stored as it is, which none exceeds."""
    return -(-chunk * types["in"].itemsize // 4)


def stored(codes: NDArray[Any]) -> Words:
    """Return the words of a chunk that is stored as it is."""
    words = np.zeros(-(-codes.nbytes // 4), np.uint32)
    words.view(np.uint8)[: codes.nbytes] = np.ascontiguousarray(codes).view(np.uint8)
    return words


def recalled(words: Words, count: int, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Undo `stored`."""
    data = words.view(np.uint8)
    if data[count * dtype.itemsize :].any():
        raise damaged(name)
    return data[: count * dtype.itemsize].view(dtype)


def damaged(name: str) -> ArchiveError:
    """Return the error for words that the stage `name` does not write."""
    return ArchiveError(f"the payload is damaged: its words cannot have been written by stage {name!r}")


def unfit(name: str, sizes: int, total: int, chunks: int, words: int) -> ArchiveError:
    """Return the error for a payload of another number of chunks or words than there should be."""
    return ArchiveError(
        f"stage {name!r} was given {sizes} chunks of {total} words; the stream has {chunks} chunks, and {words} words are there"
    )


def fitting(value: PortValue, scope: Scope, name: str) -> Chunked:
    """Return the value to decode; raise `ArchiveError` where it is not the run's chunks."""
    if not isinstance(value, Chunked):
        raise ArchiveError(f"stage {name!r} was given a stream to decode, not a chunked value")
    total = int(value.sizes.sum(dtype=np.int64))
    if value.sizes.size != scope.chunks or total != value.words.size:
        raise unfit(name, value.sizes.size, total, scope.chunks, value.words.size)
    return value


def chunks_of(given: PortValue, scope: Scope, name: str) -> Iterator[tuple[int, int, Words]]:
    """Yield the first element, the one after the last, and the words of each chunk; wrong sizes are an `ArchiveError`."""
    value = fitting(given, scope, name)
    ends = np.cumsum(value.sizes, dtype=np.int64).tolist()
    for i, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        first = i * scope.chunk
        yield first, min(first + scope.chunk, scope.count), value.words[begin:end]

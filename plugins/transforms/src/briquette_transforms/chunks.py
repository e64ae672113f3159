"""What stages on byte-chunks share: the chunk sizes there are, and streams cut into chunks of words."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.ports import PortType

#: bytes of a chunk
CHUNK_BYTES: Final = (4096, 8192, 16384)


def check_chunk_bytes(name: str, chunk_bytes: int) -> None:
    """Raise `PipelineError` for anything but one of the chunk sizes."""
    if chunk_bytes not in CHUNK_BYTES:
        raise PipelineError(f"chunk_bytes = {chunk_bytes!r} of stage {name!r} is not one of {', '.join(map(str, CHUNK_BYTES))}")


def check_stream(name: str, given: PortType) -> None:
    """Raise `PipelineError` for anything but a stream."""
    if given.layout != "stream":
        raise PipelineError(f"stage {name!r} takes a stream, not {given}")


def words(stream: Any, width: int = 0) -> NDArray[Any]:
    """Return the bytes of a stream as unsigned words of `width` bytes (0: an element's); a part of a word is left out."""
    array: NDArray[Any] = np.ascontiguousarray(stream)
    width = width or array.itemsize
    data = array.view(np.uint8)
    return data[: data.size // width * width].view(f"u{width}")

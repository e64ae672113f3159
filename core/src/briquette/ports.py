"""What flows along the edges of a pipeline: port types and the values that ports carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import PipelineError

Layout = Literal["stream", "chunked"]
Words = NDArray[np.uint32]

#: dtypes a stream port may carry
STREAM_DTYPES: Final = frozenset({"float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})

#: dtypes of quantization codes: what predictors, transforms and coders work on
CODE_DTYPES: Final = frozenset({"int16", "uint16", "int32", "uint32", "int64", "uint64"})


@dataclass(frozen=True)
class PortType:
    """Type of a port.

    Parameters
    ----------
    dtype : str
        NumPy name of the element type; of the *coded* elements for a chunked port.
    layout : {"stream", "chunked"}
        ``stream``: a 1-D array with one element for each element of the stage's input.
        ``chunked``: 32-bit words, a variable number for each archive chunk (see `Chunked`).
    """

    dtype: str
    layout: Layout = "stream"

    def __post_init__(self) -> None:
        if self.dtype not in STREAM_DTYPES:
            raise PipelineError(f"no port carries {self.dtype!r}; known element types: {', '.join(sorted(STREAM_DTYPES))}")

    def __str__(self) -> str:
        return self.dtype if self.layout == "stream" else f"chunked[{self.dtype}]"

    @property
    def is_code(self) -> bool:
        """Whether the port is a stream of quantization codes."""
        return self.layout == "stream" and self.dtype in CODE_DTYPES

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype(self.dtype)


@dataclass(frozen=True)
class Chunked:
    """The value of a chunked port.

    Attributes
    ----------
    sizes : uint32 array, shape (chunks,)
        Words of each archive chunk, in stream order.
    words : uint32 array, shape (sum of sizes,)
        The chunks' words, one chunk after another without gaps.
    """

    sizes: Words
    words: Words

    @property
    def nbytes(self) -> int:
        return int(self.words.nbytes)

    def cut(self, first: int, last: int) -> Chunked:
        """Return the value of chunks `first` to `last` - 1, which shares this one's memory."""
        begin = int(self.sizes[:first].sum(dtype=np.uint64))
        words = int(self.sizes[first:last].sum(dtype=np.uint64))
        return Chunked(self.sizes[first:last], self.words[begin : begin + words])

    @staticmethod
    def concatenate(parts: list[Chunked]) -> Chunked:
        """Join the values of consecutive runs of chunks."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Chunked(np.empty(0, np.uint32), np.empty(0, np.uint32))
        return Chunked(np.concatenate([p.sizes for p in parts]), np.concatenate([p.words for p in parts]))


@dataclass(frozen=True)
class Scratch:
    """Room for a chunked value: what a `Sink` is where no archive owns the memory."""

    sizes: Words
    words: Words


#: the value of any port
PortValue = NDArray[np.generic] | Chunked

"""What flows along the edges of a pipeline: port types and the values that ports carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import MissingPack, PipelineError

Layout = Literal["stream", "chunked"]
Words = NDArray[np.uint32]

#: dtypes of quantization codes: what predictors, transforms and coders work on
CODE_DTYPES: Final = frozenset({"int16", "uint16", "int32", "uint32", "int64", "uint64"})
INTEGER_DTYPES: Final = CODE_DTYPES | {"int8", "uint8"}
FLOAT_DTYPES: Final = frozenset({"float16", "bfloat16", "float32", "float64"})

#: dtypes a stream port may carry
STREAM_DTYPES: Final = INTEGER_DTYPES | FLOAT_DTYPES

#: dtypes of arrays whose elements travel as another type of the same bytes
CARRIED_AS: Final = {"bool": "uint8"}


def carried(dtype: str) -> str:
    """Return the element type that an array of `dtype` has as a stream: its own, but for the keys of `CARRIED_AS`."""
    return CARRIED_AS.get(dtype, dtype)


def itemsize(dtype: str) -> int:
    """Return the bytes of an element; needs no NumPy that knows the type."""
    return int(carried(dtype).lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the dtype of that name; raise `MissingPack` for bfloat16 where ml_dtypes, which defines it, is not installed."""
    if dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as exc:
            message = "bfloat16 is a dtype of ml_dtypes, which is not installed; install it: pip install ml_dtypes"
            raise MissingPack(message, distribution="ml_dtypes") from exc
        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(dtype)


@dataclass(frozen=True)
class TileInfo:
    """What a chunked port of tiles carries: the mode of every tile of the stream, and the side values its mode comes with.

    The words of such a port are packed and read by `briquette.tiles`.

    Parameters
    ----------
    span : int
        Elements of a tile; the last tile of a stream may hold fewer.
    side_words : tuple of int
        32-bit words of side values (a mean, say) that a tile has, by its mode; its length is the number of modes, 2 to 256.
    """

    span: int
    side_words: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.span < 1 or not 2 <= len(self.side_words) <= 256 or min(self.side_words) < 0:
            raise PipelineError(
                f"tiles of {self.span} elements with side words {self.side_words}: a tile holds at least one element, "
                f"and there are 2 to 256 modes of 0 words or more"
            )

    @property
    def mode_bits(self) -> int:
        """Bits of a tile's mode."""
        return (len(self.side_words) - 1).bit_length()


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
    tiles : TileInfo, optional
        For a chunked port that carries modes and side values of tiles.
    """

    dtype: str
    layout: Layout = "stream"
    tiles: TileInfo | None = None

    def __post_init__(self) -> None:
        if self.tiles is not None and self.layout != "chunked":
            raise PipelineError("a port of tiles is chunked: its words are those of whole archive chunks")
        if self.dtype not in STREAM_DTYPES:
            raise PipelineError(f"no port carries {self.dtype!r}; known element types: {', '.join(sorted(STREAM_DTYPES))}")

    def __str__(self) -> str:
        if self.tiles is not None:
            return f"tiles of {self.tiles.span}[{self.dtype}]"
        return self.dtype if self.layout == "stream" else f"chunked[{self.dtype}]"

    @property
    def is_code(self) -> bool:
        """Whether the port is a stream of quantization codes."""
        return self.layout == "stream" and self.dtype in CODE_DTYPES

    @property
    def numpy(self) -> np.dtype[Any]:
        return numpy_dtype(self.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return itemsize(self.dtype)


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class Scratch:
    """Room for a chunked value: what a `Sink` is where no archive owns the memory."""

    sizes: Words
    words: Words


#: the value of any port
PortValue = NDArray[np.generic] | Chunked

"""What stages over byte-chunks share: their parameters, the bytes of a stream, and the payload of a coder's chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked, PortType, PortValue
from briquette.stage import Scope, Stage

CHUNKS: Final = (4096, 8192, 16384)
WORDS: Final = (1, 2, 4, 8)
STRATEGY: Final = "chunk-cooperative"

Bytes = NDArray[np.uint8]


def check_choice(stage: str, name: str, value: object, choices: tuple[int, ...], unit: str) -> None:
    """Raise `PipelineError` unless `value` is one of the integers `choices`."""
    if isinstance(value, int) and not isinstance(value, bool) and value in choices:
        return
    listed = ", ".join(map(str, choices))
    raise PipelineError(f"{name} = {value!r} of stage {stage!r} must be one of {listed} {unit}")


def bytes_of(stream: PortValue) -> Bytes:
    """Return the bytes of a stream, shape (count * itemsize,), little-endian."""
    array: NDArray[Any] = np.ascontiguousarray(np.asarray(stream))
    return array.astype(array.dtype.newbyteorder("<"), copy=False).view(np.uint8)


@dataclass(frozen=True)
class ByteChunkStage(Stage):
    """Base of stages that work on byte-chunks seen as words.

    Parameters
    ----------
    chunk_bytes : int, optional
        Bytes of a chunk: 4096, 8192 or 16384 (default).
    word : int, optional
        Bytes of a word: 1, 2, 4 or 8, whatever the stream's element type is.

    Raises
    ------
    PipelineError
        If a parameter is anything else.
    """

    chunk_bytes: int = 16384
    word: int = 1

    def __post_init__(self) -> None:
        check_choice(self.name, "chunk_bytes", self.chunk_bytes, CHUNKS, "bytes")
        check_choice(self.name, "word", self.word, WORDS, "bytes")

    def check_stream(self, given: PortType) -> None:
        """Raise `PipelineError` unless the port is a stream."""
        if given.layout != "stream":
            raise PipelineError(f"stage {self.name!r} takes a stream, not {given}; a coder's output is coded already")

    def words(self, data: Bytes) -> NDArray[Any]:
        """View the whole words of a chunk's bytes, without what is left over at its end."""
        return data[: data.size // self.word * self.word].view(f"<u{self.word}")

    def parts(self, size: int, scope: Scope) -> Iterator[slice]:
        """Yield where the chunks of a piece of `size` bytes lie; raise `PipelineError` where chunks are of another size."""
        if scope.chunk * scope.types["in"].numpy.itemsize != self.chunk_bytes:
            raise PipelineError(
                f"stage {self.name!r} works on chunks of {self.chunk_bytes} bytes; the archive's have {scope.chunk} elements "
                f"of {scope.types['in']}, which is {scope.chunk * scope.types['in'].numpy.itemsize} bytes"
            )
        return (slice(at, min(at + self.chunk_bytes, size)) for at in range(0, size, self.chunk_bytes))


class Reader:
    """Takes a coded chunk apart, front to back; nothing is read that is not there.

    Parameters
    ----------
    payload : uint8 array
        A chunk's payload with the zero bytes that fill its last 32-bit word.
    """

    def __init__(self, payload: Bytes) -> None:
        self._payload = payload
        self._at = 0

    def take(self, size: int) -> Bytes:
        """Return the next `size` bytes; raise `ArchiveError` where there are fewer."""
        if size > self._payload.size - self._at:
            left = self._payload.size - self._at
            raise ArchiveError(f"a coded chunk of {self._payload.size} bytes ends where {size} bytes are due and {left} are left")
        self._at += size
        return self._payload[self._at - size : self._at]

    def align(self, unit: int) -> None:
        """Skip to the next multiple of `unit` bytes; raise `ArchiveError` where what is skipped is not zero."""
        if self.take(-self._at % unit).any():
            raise ArchiveError("the padding inside a coded chunk is not zero")

    def finish(self) -> None:
        """Raise `ArchiveError` unless nothing is left but the zero bytes of the last word."""
        self.align(4)
        if self._at != self._payload.size:
            raise ArchiveError(f"a coded chunk of {self._payload.size} bytes has {self._payload.size - self._at} bytes too many")


@dataclass(frozen=True)
class ChunkCoder(ByteChunkStage):
    """Base of coders: `encode` and `decode` of one chunk become `forward` and `inverse`.

    A chunk that would not take fewer 32-bit words than its bytes fill is stored as it is (docs/format.md, "Coded byte-chunks").
    """

    def encode(self, data: Bytes) -> Bytes:
        """Return the coded form of a chunk's bytes; as many bytes or more mean that it does not shrink."""
        raise NotImplementedError

    def decode(self, coded: Reader, size: int) -> Bytes:
        """Return the `size` bytes of a chunk; raise `ArchiveError` where `coded` is no coded form of so many."""
        raise NotImplementedError

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream."""
        self.check_stream(inputs["in"])
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk that is stored as it is."""
        return -(-chunk * types["in"].numpy.itemsize // 4)

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code the stream ``in``, shape (count,), into the chunked ``out``."""
        data = bytes_of(inputs["in"])
        coded = []
        for part in self.parts(data.size, scope):
            plain = data[part]
            made = self.encode(plain)
            coded.append(made if -(-made.size // 4) < -(-plain.size // 4) else plain)
        sizes = np.array([-(-c.size // 4) for c in coded], np.uint32)
        words = np.zeros(int(sizes.sum(dtype=np.int64)), "<u4")
        room, at = words.view(np.uint8), 0
        for c, size in zip(coded, sizes.tolist(), strict=True):
            room[at : at + c.size] = c
            at += 4 * size
        return {"out": Chunked(sizes, words.astype(np.uint32, copy=False))}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into the stream ``in``; raise `ArchiveError` if it is no payload of this coder."""
        value = outputs["out"]
        if not isinstance(value, Chunked):
            raise ArchiveError(f"stage {self.name!r} was given a stream to decode, not a chunked value")
        dtype = scope.types["in"].numpy
        out = np.empty(scope.count * dtype.itemsize, np.uint8)
        parts = list(self.parts(out.size, scope))
        if value.sizes.size != len(parts):
            raise ArchiveError(f"stage {self.name!r} was given {value.sizes.size} chunks, not the {len(parts)} of its elements")
        if int(value.sizes.sum(dtype=np.uint64)) != value.words.size:
            raise ArchiveError(f"the chunks of stage {self.name!r} do not add up to the {value.words.size} words there are")
        room, at = bytes_of(value.words), 0
        for part, size in zip(parts, value.sizes.tolist(), strict=True):
            out[part] = self._decoded(room[at : at + 4 * size], part.stop - part.start)
            at += 4 * size
        return {"in": out.view(dtype.newbyteorder("<")).astype(dtype, copy=False)}

    def _decoded(self, payload: Bytes, size: int) -> Bytes:
        plain = -(-size // 4) * 4
        if payload.size > plain:
            raise ArchiveError(f"a coded chunk of {payload.size} bytes stands for {size} bytes; no more than {plain} are used")
        coded = Reader(payload)
        data = coded.take(size) if payload.size == plain else self.decode(coded, size)
        coded.finish()
        return data

    def fusion_spec(self) -> FusionSpec:
        """SEGMENT_CODEC over `chunk_bytes` bytes."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, self.chunk_bytes, unit="bytes")

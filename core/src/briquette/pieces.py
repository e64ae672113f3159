"""A walk over the stream: port values cut to pieces of whole chunks, and the pieces that stages give back put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .arena import Streams
from .errors import DeclarationError
from .graph import NodePort
from .ports import Chunked, PortType, PortValue

#: elements a walk of NumPy stages takes at a time: large enough to hide call overhead, small enough for the cache
PIECE: Final = 1 << 18


def walk(stages: int, count: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield the pieces, as half-open ranges, in which so many stages walk a stream; one stage takes it whole."""
    size = max(PIECE // chunk, 1) * chunk if stages > 1 else max(count, 1)
    for begin in range(0, count, size) if stages > 1 else (0,):
        yield begin, min(begin + size, count)


def all_of(checks: Iterable[Callable[[int, int], None]]) -> Callable[[int, int], None] | None:
    """Return what makes all the checks of a range of chunks, None where there is none."""
    checks = tuple(checks)

    def check(begin: int, end: int) -> None:
        for one in checks:
            one(begin, end)

    return check if checks else None


@dataclass(eq=False)
class Gathered:
    """Puts the pieces a NumPy step makes together: streams where they belong, chunked values at the end."""

    step: int
    count: int
    streams: Streams
    on_host: bool
    _streams: dict[NodePort, NDArray[Any]] = field(default_factory=dict)
    _chunked: dict[NodePort, list[Chunked]] = field(default_factory=dict)

    def add(self, port: NodePort, begin: int, end: int, value: PortValue) -> None:
        """Take the piece of elements `begin` to `end` - 1; pieces come in stream order."""
        if isinstance(value, Chunked):
            self._chunked.setdefault(port, []).append(self.streams.lasting(value))
        elif end - begin == self.count and not self.streams.places((port, self.step)):
            self._streams[port] = self.streams.lasting(value)
        else:
            if port not in self._streams:
                self._streams[port] = self._room(port, value.dtype)
            self._streams[port][begin:end] = value

    def _room(self, port: NodePort, dtype: np.dtype[Any]) -> NDArray[Any]:
        if not self.on_host:  # the run's streams lie in a target's memory
            return np.empty(self.count, dtype)
        room: NDArray[Any] = self.streams.new((port, self.step), PortType(dtype.name), self.count)
        return room

    def found(self) -> dict[NodePort, PortValue]:
        return {**self._streams, **{port: Chunked.concatenate(parts) for port, parts in self._chunked.items()}}


@dataclass(eq=False)
class Cutter:
    """Cuts port values to a range of elements that begins at a chunk."""

    values: Mapping[NodePort, PortValue]
    chunk: int
    pieces: bool
    _offsets: dict[NodePort, NDArray[np.int64]] = field(default_factory=dict)

    def __call__(self, port: NodePort, begin: int, end: int) -> PortValue:
        value = self.values.get(port)
        if value is None:
            raise DeclarationError(f"the inverse needs {port[0]}.{port[1]}, which no stage gave back")
        if not self.pieces:
            return value
        if isinstance(value, np.ndarray):
            return value[begin:end]
        if port not in self._offsets:
            self._offsets[port] = np.concatenate([[0], np.cumsum(value.sizes, dtype=np.int64)])
        first, last = begin // self.chunk, -(-end // self.chunk)
        offsets = self._offsets[port]
        return Chunked(value.sizes[first:last], value.words[offsets[first] : offsets[last]])


def given(
    port: NodePort, values: Mapping[NodePort, PortValue], made: Mapping[NodePort, PortValue], begin: int, end: int, chunk: int
) -> PortValue:
    """Return the piece of a port that a stage reads: one just made, or that of the whole stream; all where `chunk` is 0."""
    if port in made:
        return made[port]
    value = values[port]
    if not chunk:
        return value
    return value.cut(begin // chunk, -(-end // chunk)) if isinstance(value, Chunked) else value[begin:end]


def check_value(value: PortValue, kind: PortType, node: str, port: str, count: int, chunk: int) -> PortValue:
    """Hold a stage's NumPy form to what it declared."""
    if isinstance(value, Chunked):
        if kind.layout != "chunked" or value.sizes.size != -(-count // chunk):
            raise DeclarationError(
                f"{node}.{port} is {kind}: got {value.sizes.size} chunk sizes for {count} elements in chunks of {chunk}"
            )
    elif kind.layout != "stream" or value.dtype != kind.numpy or value.shape != (count,):
        raise DeclarationError(f"{node}.{port} should be {kind} of shape ({count},), got {value.dtype} of shape {value.shape}")
    return value


def check_given_back(node: str, optional: Iterable[str], connected: Iterable[str], found: Mapping[str, PortValue]) -> None:
    """Hold a stage's NumPy inverse to give back every optional input that is connected."""
    for port in optional:
        if port in connected and port not in found:
            raise DeclarationError(f"the inverse of {node!r} did not give back its input {port!r}, which is connected")

"""What tile-order and tiled-lorenzo share: the tiles of an array, of 64 elements each, by the number of their axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.layouts import Layout
from briquette.params import Scalar

#: elements of a tile
TILE: Final = 64
#: edges of a tile, as powers of two along the last three axes, by the number of its axes
EDGES: Final = {1: (0, 0, 6), 2: (0, 3, 3), 3: (2, 2, 2)}


def check_axes(stage: str, axes: object) -> None:
    """Raise `PipelineError` unless `axes` is 0 (by the array's rank) or a number of axes that a tile can have."""
    if isinstance(axes, bool) or not isinstance(axes, int) or axes not in (0, *EDGES):
        raise PipelineError(f"axes = {axes!r} of stage {stage!r} must be 1, 2 or 3, or 0 for as many as the array has")


def tile_axes(shape: tuple[int, ...], axes: int) -> int:
    """Return how many axes the tiles of an array of `shape` have: no more than it has of a length other than 1."""
    long = sum(length != 1 for length in shape)
    return max(1, min(axes or 3, long))


@dataclass(frozen=True)
class TileLayout(Layout):
    """The tiles of an array one after another in C order, each with its own elements in C order.

    Axes of length 1 do not count; of those left, the last `axes` are tiled, what is before them is a batch. A tile that reaches
    over an edge repeats the last element there is along that axis.

    Parameters
    ----------
    shape : tuple of int
        Of the array; no axis of 0.
    axes : int
        1, 2 or 3, from `tile_axes`.
    """

    shape: tuple[int, ...]
    axes: int

    @cached_property
    def lengths(self) -> tuple[int, int, int, int]:
        """The array as a batch of three axes; those that are not tiled have length 1."""
        long = [length for length in self.shape if length != 1]
        tiled = long[len(long) - self.axes :] if len(long) >= self.axes else long
        three = [1] * (3 - len(tiled)) + tiled
        batch = 1
        for length in long[: len(long) - len(tiled)]:
            batch *= length
        return batch, three[0], three[1], three[2]

    @cached_property
    def grid(self) -> tuple[int, int, int]:
        """Tiles along the three axes."""
        a, b, c = ((length + (1 << edge) - 1) >> edge for length, edge in self._axes)
        return a, b, c

    @property
    def _axes(self) -> list[tuple[int, int]]:
        return list(zip(self.lengths[1:], EDGES[self.axes], strict=True))

    @cached_property
    def count(self) -> int:  # type: ignore[override]
        """Elements of all tiles."""
        batch, (a, b, c) = self.lengths[0], self.grid
        return batch * a * b * c * TILE

    def params(self) -> Mapping[str, Scalar]:
        """Return lengths, tiles and edges along the three axes."""
        values: dict[str, Scalar] = {}
        for at, ((length, edge), tiles) in enumerate(zip(self._axes, self.grid, strict=True)):
            values |= {f"length{at}": length, f"tiles{at}": tiles, f"edge{at}": edge}
        return values

    def places(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for the laid-out elements `begin` to `end` - 1 which of the array they are, and whether not as padding."""
        at = np.arange(begin, end, dtype=np.int64)
        tile, within = at // TILE, at % TILE
        inner: list[Any] = []
        for _, edge in reversed(self._axes):
            inner.append(within & ((1 << edge) - 1))
            within >>= edge
        place, stride = np.zeros_like(at), 1
        own = np.ones(at.size, np.bool_)
        for (length, edge), tiles, offset in zip(reversed(self._axes), reversed(self.grid), inner, strict=True):
            coordinate = (tile % tiles << edge) + offset
            own &= coordinate < length
            place += np.minimum(coordinate, length - 1) * stride
            tile //= tiles
            stride *= length
        return place + tile * stride, own

    def covering(self, begin: int, end: int) -> tuple[int, int]:
        """Return the range from the tile of the first element that lies in any tile's row, to that of the last."""
        first, last = self._coordinates(begin), self._coordinates(end - 1)
        low, high = [first[0]], [last[0]]
        apart = first[0] != last[0]
        for at, (length, edge) in enumerate(self._axes, 1):
            # once the two ends differ, rows between them are whole, and so are those of every tile on the way
            low.append(0 if apart else first[at] >> edge)
            high.append((length - 1) >> edge if apart else last[at] >> edge)
            apart = apart or first[at] != last[at]
        return self._tile(low) * TILE, (self._tile(high) + 1) * TILE

    def _coordinates(self, element: int) -> list[int]:
        found = []
        for length in reversed(self.lengths[1:]):
            element, at = divmod(element, length)
            found.append(at)
        return [element, *reversed(found)]

    def _tile(self, coordinates: list[int]) -> int:
        number = coordinates[0]
        for at, tiles in zip(coordinates[1:], self.grid, strict=True):
            number = number * tiles + at
        return number

    # -- all of an array at once, for NumPy ----------------------------------------------------------------

    def gather(self, stream: NDArray[Any]) -> NDArray[Any]:
        """Return all of an array's elements, shape (elements,), as they are laid out."""
        pads = [(0, 0), *((0, (tiles << edge) - length) for (length, edge), tiles in zip(self._axes, self.grid, strict=True))]
        padded = np.pad(stream.reshape(self.lengths), pads, mode="edge")
        return padded.reshape(self._split).transpose(0, 1, 3, 5, 2, 4, 6).reshape(-1)

    def scatter(self, laid: NDArray[Any]) -> NDArray[Any]:
        """Return the array's elements from all that are laid out."""
        batch, (a, b, c), edges = self.lengths[0], self.grid, [1 << edge for _, edge in self._axes]
        whole = laid.reshape(batch, a, b, c, *edges).transpose(0, 1, 4, 2, 5, 3, 6)
        padded = whole.reshape(batch, *(tiles * edge for tiles, edge in zip(self.grid, edges, strict=True)))
        return padded[tuple(slice(length) for length in self.lengths)].reshape(-1)

    @property
    def _split(self) -> tuple[int, ...]:
        split = [self.lengths[0]]
        for (_, edge), tiles in zip(self._axes, self.grid, strict=True):
            split += [tiles, 1 << edge]
        return tuple(split)

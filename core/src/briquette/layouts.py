"""Layouts: streams whose elements stand in another order than the array's, perhaps with some of them repeated as padding."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .params import Scalar

if TYPE_CHECKING:
    from .graph import Graph, NodePort


class Layout(ABC):
    """Where the elements of a laid-out stream come from: what a LAYOUT stage makes of one array's shape.

    Every element of the array is laid out once as itself; what else there is is padding, a repetition of some element.

    Attributes
    ----------
    count : int
        Elements of the laid-out stream, padding included: at least as many as the array has.
    """

    count: int

    @abstractmethod
    def params(self) -> Mapping[str, Scalar]:
        """Return the values of the stage's `FusedOp.params`."""

    @abstractmethod
    def places(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return for the laid-out elements `begin` to `end` - 1 which of the array they are, and whether not as padding."""

    @abstractmethod
    def covering(self, begin: int, end: int) -> tuple[int, int]:
        """Return a half-open range of laid-out elements with all of the array's from `begin` to `end` - 1 (at least one)."""


@dataclass(frozen=True)
class Stretch:
    """The part of an array that a run works on: all of it, or what some whole chunks hold.

    Attributes
    ----------
    shape : tuple of int
        That of the whole array.
    begin, end : int
        First element in C order, and the one after the last.
    layout : Layout or None
        Where the pipeline has a LAYOUT stage: where its elements come from.
    laid_begin, laid_end : int
        The laid-out elements at hand: whole chunks of them, with all elements from `begin` to `end` - 1 among them.
    """

    shape: tuple[int, ...]
    begin: int
    end: int
    layout: Layout | None = None
    laid_begin: int = 0
    laid_end: int = 0

    @property
    def count(self) -> int:
        return self.end - self.begin

    @property
    def laid_count(self) -> int:
        return self.laid_end - self.laid_begin

    @property
    def whole(self) -> bool:
        """Whether it is all of the array."""
        return self.count == math.prod(self.shape)


@dataclass(eq=False)
class Lengths:
    """How long the streams of a pipeline's runs are: behind a LAYOUT stage, as long as what that lays out.

    Parameters
    ----------
    graph : Graph
    chunk : int
        Elements of an archive chunk.
    """

    graph: Graph
    chunk: int
    _recent: Stretch | None = None

    def stretch(self, shape: tuple[int, ...], begin: int = 0, end: int | None = None) -> Stretch:
        """Return the part of an array of `shape` from `begin` to `end` - 1 (default: all), with what is laid out of it."""
        recent = self._recent
        if end is None and not begin and recent is not None and recent.shape == shape:
            return recent  # arrays of one shape come one after the other
        node, count, chunk = self.graph.layout, math.prod(shape), self.chunk
        layout = self.graph.nodes[node].layout(shape) if node is not None and count else None
        end = count if end is None else end
        first, last = (0, 0) if layout is None or begin >= end else layout.covering(begin, end)
        most = 0 if layout is None else layout.count
        made = Stretch(shape, begin, end, layout, first // chunk * chunk, min(-(-last // chunk) * chunk, most))
        if (begin, end) == (0, count):
            self._recent = made
        return made

    def of(self, what: int | Stretch) -> Stretch:
        """Return a part of an array as it is; a number stands for all of a 1-D array of so many elements."""
        return what if isinstance(what, Stretch) else self.stretch((what,))

    def laid(self, node: str) -> bool:
        """Whether what a node gives is laid out."""
        return node == self.graph.layout or node in self.graph.behind

    def elements(self, port: NodePort, of: Stretch) -> int:
        """Return how many elements the stream of a port has, or the stream that a chunked port codes."""
        return of.laid_count if self.laid(port[0]) else of.count

    def chunks(self, port: NodePort, of: Stretch) -> int:
        """Return how many chunks those are."""
        return -(-self.elements(port, of) // self.chunk)

    def place(self, port: NodePort, of: Stretch) -> tuple[int, int, int]:
        """Return which elements of a port's stream a part of the array takes, as a half-open range, and how many there are."""
        if self.laid(port[0]):
            return of.laid_begin, of.laid_end, 0 if of.layout is None else of.layout.count
        return of.begin, of.end, math.prod(of.shape)

    def reads(self, node: str, of: Stretch) -> int:
        """Return how many elements a node reads."""
        return of.laid_count if node in self.graph.behind else of.count

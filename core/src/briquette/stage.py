"""The stage contract: an immutable object with ports, parameters, a NumPy reference and fusion declarations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .bounds import Extent, extent, first_finite, range_bound
from .declare import FusedOp, FusionSpec
from .errors import DeclarationError, PipelineError, UsageError
from .layouts import Layout, Stretch
from .params import Scalar
from .ports import Chunked, PortType, PortValue
from .record import Bound

if TYPE_CHECKING:
    from .harness import Direction, StagedKernel


@dataclass(frozen=True)
class PrimeContext:
    """What a stage may look at when it resolves the state of a run, before anything is launched.

    Attributes
    ----------
    source : array, shape (n,), or None
        The stage's first input where it is materialized in host memory.
    types : mapping of port name to PortType
        The types of the stage's inputs and outputs.
    bound : Bound or None
        The error bound the caller asked for.
    count : int
        Elements in the stream.
    surveyed : Extent, optional
        What a target found out about the input in its own memory.
    missing : tuple of float
        What the stage's `missing_values` are: values that do not count.
    chunk : int
        Elements of an archive chunk; 0 where whoever primes does not say.
    shape : tuple of int
        The array's shape, wherever in the pipeline the stage stands.
    chunked : Chunked, optional
        The stage's first input where it is chunked, in host memory.
    """

    source: NDArray[Any] | None
    types: Mapping[str, PortType]
    bound: Bound | None
    count: int
    surveyed: Extent | None = None
    missing: tuple[float, ...] = ()
    chunk: int = 0
    shape: tuple[int, ...] = ()
    chunked: Chunked | None = None

    def extent(self) -> Extent:
        """Return smallest, largest and first finite value of the stage's input.

        Raises
        ------
        PipelineError
            Where the input is made inside a fused group, so that nothing has seen it yet.
        """
        return self.surveyed if self.surveyed is not None else extent(self._seen(), self.missing)

    def first_finite(self) -> float | None:
        """Return the first finite value of the stage's input, None where there is none; raises as `extent` does."""
        if self.surveyed is not None:
            return self.surveyed.first if self.surveyed.any else None
        return first_finite(self._seen(), self.missing)

    def absolute_bound(self) -> float:
        """Return the error bound as an absolute one, ``rel * range`` rounded down; 0.0 for a constant field.

        Raises
        ------
        UsageError
            Where the run has no bound, or a point-wise relative one.
        """
        if self.bound is None:
            raise UsageError("the pipeline needs an error bound: pass eb= and mode=")
        if self.bound.mode == "pwrel":
            raise UsageError("a point-wise relative bound is no absolute one; a stage that serves it takes bound.eb")
        return self.bound.eb if self.bound.mode == "abs" else range_bound(self.bound.eb, self.extent())[1]

    def _seen(self) -> NDArray[Any]:
        if self.source is None:
            raise PipelineError("a stage that resolves a bound must see the data before it runs; put it at the pipeline's input")
        return self.source


@dataclass(frozen=True)
class Tail:
    """What follows a TILE_SELECTOR on the main path: ELEMENTWISE transforms, then the coder by whose cost it chooses.

    Attributes
    ----------
    segment : int
        Elements of the coder's segment; a tile holds whole segments.
    cost : callable
        ``cost(codes)`` gives the words, int64, of each segment of `codes` (shape (n,), from a segment's start; what is
        missing in the last segment counts as zeros behind the transforms). A segment's cost depends on its elements only.
    room : callable, optional
        ``room(elements)`` gives how many modes the metadata of a tile of so many elements holds, where a coder keeps them.
    """

    segment: int
    cost: Callable[[NDArray[Any]], NDArray[np.int64]]
    room: Callable[[int], int] | None = None


def _unheard(name: str, amount: int) -> None:
    """A tally nobody reads."""


@dataclass(frozen=True)
class Scope:
    """What the NumPy forward and inverse of a stage are told about the piece of stream they work on.

    The executor may hand a stage with a local role any run of whole archive chunks rather than the whole
    stream; every span divides a chunk, so such a stage need not care.

    Attributes
    ----------
    state : mapping
        The stage's part of the run record.
    types : mapping of port name to PortType
    count : int
        Elements of the stage's input in this piece.
    chunk : int
        Elements of an archive chunk; the last one of a stream may hold fewer.
    tally : callable
        ``tally(name, amount)`` adds to a count that the run reports (outliers, say); pieces add up.
    tail : Tail or None
        For the forward pass of a TILE_SELECTOR: what follows it.
    stretch : Stretch or None
        The array's shape, the part of the array that the run works on, and for a LAYOUT stage where its elements come from.
    """

    state: Mapping[str, Scalar]
    types: Mapping[str, PortType]
    count: int
    chunk: int
    tally: Callable[[str, int], None] = _unheard
    tail: Tail | None = None
    stretch: Stretch | None = None

    def tail_cost(self, codes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the words that the stages behind this selector make of each segment of `codes`; see `Tail.cost`."""
        return self._followed.cost(codes)

    @property
    def tail_segment(self) -> int:
        """Elements of a segment of `tail_cost`."""
        return self._followed.segment

    def mode_limit(self, elements: int, modes: int) -> int:
        """Return how many of `modes`, the lowest, a tile of `elements` may choose from: all, but in the last of a stream."""
        room = self._followed.room
        return modes if room is None else min(modes, room(elements))

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape; where nothing is known of it, that of a 1-D array."""
        return (self.count,) if self.stretch is None else self.stretch.shape

    @property
    def laid(self) -> Stretch:
        """What a LAYOUT stage lays out: where its elements come from, and which of them there are."""
        if self.stretch is None or self.stretch.layout is None:
            raise DeclarationError("this scope knows no layout: only that of a LAYOUT stage does")
        return self.stretch

    @property
    def _followed(self) -> Tail:
        if self.tail is None:
            raise DeclarationError("this scope knows no tail: only the forward pass of a TILE_SELECTOR has one")
        return self.tail

    @property
    def chunks(self) -> int:
        """Archive chunks in this piece."""
        return -(-self.count // self.chunk)


class Stage:
    """Base of all stages. Subclasses are frozen dataclasses whose fields are the stage's parameters.

    The first input and the first output are the main path. Stages never change after construction: what a run
    resolves lives in the run record, so one object serves many threads, compares equal to its copy and pickles.

    Attributes
    ----------
    name : str
        The name the pack registers it under, lower case with hyphens.
    format_version : int
        Raised when the stage's bytes change; `reads_versions` lists the versions its inverse understands.
    inputs, outputs : tuple of str
        Port names.
    optional_inputs : tuple of str
        Further inputs that may stay unconnected. One that is connected appears in `types`, in what `forward` is given and in
        what `inverse` gives back.
    needs_bound : bool
        Whether the pipeline must be given an error bound.
    bound_modes : tuple of str
        The modes of the bound that a stage with `needs_bound` or `takes_bound` serves.
    takes_bound : bool
        Whether it makes use of an error bound that it can do without.
    reads_shape : bool
        Whether what it does depends on the array's shape, so that a part of the stream is no example of the whole.
    """

    name: ClassVar[str] = ""
    format_version: ClassVar[int] = 1
    reads_versions: ClassVar[tuple[int, ...]] = (1,)
    inputs: ClassVar[tuple[str, ...]] = ("in",)
    outputs: ClassVar[tuple[str, ...]] = ("out",)
    optional_inputs: ClassVar[tuple[str, ...]] = ()
    needs_bound: ClassVar[bool] = False
    bound_modes: ClassVar[tuple[str, ...]] = ("abs", "rel")
    takes_bound: ClassVar[bool] = False
    reads_shape: ClassVar[bool] = False

    # -- types ---------------------------------------------------------------------------------------------

    def stand_in(self, dtype: str) -> Stage:
        """Return the stage that takes this one's place where it would read a pipeline's input of `dtype`; by default itself.

        So a pipeline serves types that need another stage, a quantizer of integers, say. Archives name the stage that ran.
        """
        return self

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the type of each output; raise `PipelineError` for inputs the stage cannot take."""
        raise NotImplementedError

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the most 32-bit words a chunk of `chunk` elements can take on the chunked output `port`."""
        raise DeclarationError(f"stage {self.name!r} has a chunked output {port!r} but no max_chunk_words")

    def missing_values(self) -> tuple[float, ...]:
        """Return the values that stand for missing ones in the stage's input, beside NaN and infinities.

        They are compared bit for bit in the data's type, must come back so, and do not count in extents.
        """
        return ()

    def with_missing_values(self, values: tuple[float, ...]) -> Stage | None:
        """Return the stage that takes these for missing as well; None: it knows no missing values."""
        return None

    def replaced_code(self, dtype: str) -> int | None:
        """Return the code of `dtype` that a lossless stage may replace and does not give back; None (the default): there is none.

        It stands for elements that come back by other means: those that the head of the chain keeps aside, say.
        """
        return None

    # -- the NumPy reference -------------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Return the value of every output (the oracle for every other target)."""
        raise NotImplementedError

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Return the value of every input, from the outputs; raise `ArchiveError` for impossible ones."""
        raise NotImplementedError

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """Return where the elements of a LAYOUT stage's output come from, for an array of `shape` (no axis of 0)."""
        raise DeclarationError(f"stage {self.name!r} is a LAYOUT but tells no layout")

    # -- what a selector asks of a coder -------------------------------------------------------------------

    def cost(self, codes: NDArray[Any], scope: Scope) -> NDArray[np.int64]:
        """Return the words that each segment of `codes` takes without metadata, int64, shape (ceil(n / segment),).

        Optional, for a SEGMENT_CODEC: a TILE_SELECTOR before it chooses by this. The segment is its fusion span; elements
        missing in the last segment count as zeros. The cost of a segment depends on its elements only.
        """
        raise DeclarationError(f"stage {self.name!r} tells no cost, by which a selector before it could choose")

    def spare_meta_bits(self, dtype: str) -> int:
        """Return how many high bits of a segment's metadata are always 0 for codes of `dtype`.

        Where the stage takes the tiles of a selector as an optional input, it keeps their modes there (`briquette.tiles`).
        """
        return 0

    # -- fusion declarations -------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """Role and span for compression."""
        return FusionSpec()

    def fused_op(self) -> FusedOp | None:
        """The device policy for compression, or None."""
        return None

    def inverse_fusion_spec(self) -> FusionSpec:
        """Role and span for decompression; in lockstep with `fusion_spec` unless overridden."""
        return self.fusion_spec()

    def inverse_fused_op(self) -> FusedOp | None:
        """The device policy for decompression; in lockstep with `fused_op` unless overridden."""
        return self.fused_op()

    def random_access_spec(self) -> FusionSpec:
        """How far the inverse looks, for parts of an array decoded without the rest.

        What `inverse_fusion_spec` says unless overridden: a stage that nothing fuses with may decode its chunks one by one.
        """
        return self.inverse_fusion_spec()

    def staged_kernel(self, direction: Direction, dialect: str, types: Mapping[str, PortType]) -> StagedKernel | None:
        """Return what makes the program by which the stage runs alone on targets of `dialect`, or None: as NumPy.

        For a stage whose own passes over the data are no policy of a harness, a barrier that counts before it codes, say. It is
        called as ``kernel(node, types, target, chunk)`` and composes and compiles its source as a harness does.
        """
        return None

    def fused_aux_outputs(self) -> tuple[str, ...]:
        """Outputs that leave a fused group beside the main path and stay materialized."""
        return ()

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve what this run needs and its inverse will read; called once, before anything is launched."""
        return {}

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the values of `FusedOp.params` for a run whose record holds `state`."""
        return {}

    # -- parameters ----------------------------------------------------------------------------------------

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of the parameters: the fields of the dataclass the stage is."""
        declared: Any = cls
        return [f.name for f in dataclasses.fields(declared)] if dataclasses.is_dataclass(declared) else []

    def parameters(self) -> dict[str, Scalar]:
        """Return the parameters by name, as TOML and archives hold them."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    @classmethod
    def from_parameters(cls, values: Mapping[str, Any]) -> Stage:
        """Make the stage from parameters by name; unknown names are refused with the known ones listed."""
        known = cls.parameter_names()
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise PipelineError(
                f"stage {cls.name!r} has no parameter {', '.join(map(repr, unknown))}; it has: {', '.join(known) or 'none'}"
            )
        fields: Any = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        no_default = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
        missing = [name for name in no_default if name not in values]
        if missing:
            raise PipelineError(f"stage {cls.name!r} needs the parameter {', '.join(map(repr, missing))}, which has no default")
        return cls(**values)

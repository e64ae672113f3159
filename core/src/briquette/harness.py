"""The harness contract (`FusionStrategy`): an execution model into which device policies are composed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .declare import FusedOp, FusionSpec
from .errors import PipelineError
from .layouts import Stretch
from .ports import PortType, PortValue, Words
from .record import Bound, RunRecord
from .stage import Stage
from .target import KernelSource, Target

Direction = Literal["forward", "inverse"]


@dataclass(frozen=True)
class Member:
    """One stage of a chain as a harness sees it."""

    node: str
    stage: Stage
    spec: FusionSpec
    op: FusedOp
    types: Mapping[str, PortType]

    @property
    def main_in(self) -> PortType:
        return self.types[self.stage.inputs[0]]

    @property
    def main_out(self) -> PortType:
        return self.types[self.stage.outputs[0]]


class Overflow(Exception):
    """The payload does not fit the space given: the archive would be larger than the data."""


class Sink(Protocol):
    """Where a group writes the chunked value of its tail: memory the archive owns, or a temporary."""

    @property
    def sizes(self) -> Words: ...

    @property
    def words(self) -> Words:
        """The room there is, not the final size."""


@dataclass(eq=False, slots=True)  # made in every run: frozen, it would take as long as a launch
class GroupRun:
    """One execution of a group; nobody changes it.

    Attributes
    ----------
    record : RunRecord
        State of every member is there already (priming comes first).
    count, chunk : int
        Elements of the stream and of an archive chunk.
    coded : int
        Elements of the stream that the group's tail makes: `count`, but for a group with a LAYOUT stage.
    threads : int
    bound : Bound or None
        Forward only, for programs that prime their members themselves.
    open_sink : callable or None
        Forward only: returns where the tail's payload goes, and is called once, when the record holds the members'
        state; None where the group ends at a stream, or where a target with memory of its own keeps the payload.
    out : array or None
        Where the stream the run ends with goes: the reconstruction or codes. C-contiguous, `count` elements.
    checker : callable or None
        Inverse only: called with a half-open range of chunks before they are read; raises where a checksum fails.
    stretch : Stretch or None
        The array's shape and the part that the run works on. Of a group with a LAYOUT stage, `count` is what its head reads,
        and `coded` what its tail codes.
    aside_checker : callable or None
        Inverse only, of a group with a LAYOUT stage: the same as `checker`, for ports that hold chunks of the head's input.
    """

    record: RunRecord
    count: int
    chunk: int
    threads: int
    bound: Bound | None = None
    open_sink: Callable[[], Sink] | None = None
    out: Any = None
    checker: Any = None
    stretch: Stretch | None = None
    coded: int = -1
    aside_checker: Any = None

    def __post_init__(self) -> None:
        if self.coded < 0:
            self.coded = self.count

    @property
    def chunks(self) -> int:
        return -(-self.count // self.chunk)

    @property
    def coded_chunks(self) -> int:
        return -(-self.coded // self.chunk)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count,) if self.stretch is None else self.stretch.shape


class Repeated(Mapping[tuple[str, str], Any]):
    """What `GroupProgram.forward` returns, of a run that came again."""

    @abstractmethod
    def back(self, inverse: Callable[[], GroupProgram | None], out: Any) -> bool:
        """Decompress into a device array of the run's size, as the program that `inverse` returns does; False where it cannot."""


#: takes an array of the same type and shape; returns the run's record and values
Again = Callable[[Any], tuple[RunRecord, Mapping[tuple[str, str], Any]]]


class GroupProgram(ABC):
    """Compiled code of one group, in one direction."""

    #: whether `forward` resolves its members' state itself (on a device, say) and writes it to the record
    primes: bool = False

    def capture_with(self, inverse: GroupProgram, session: Any, source: Any, run: GroupRun) -> Any:
        """Return this program and its inverse ready to replay over the memory of `source`, for runs like `run`."""
        raise PipelineError("this group cannot be captured: only kernels of a target with graphs can")

    def again(self, source: Any, run: GroupRun) -> Again | None:
        """Return what compresses arrays like `source` in runs like `run` at less cost than `forward`; None: nothing does."""
        return None

    @abstractmethod
    def forward(self, source: Any, run: GroupRun) -> dict[tuple[str, str], PortValue]:
        """Run compression; return the tail's main output and every declared aux output by (node, port)."""

    @abstractmethod
    def inverse(self, values: Mapping[tuple[str, str], PortValue], run: GroupRun) -> Any:
        """Run decompression from the tail's main output and the aux outputs; return the head's main input."""


#: what a stage runs alone by, see `Stage.staged_kernel`: of its node, its ports' types, the target, the elements of a chunk
StagedKernel = Callable[[str, Mapping[str, PortType], Target, int], GroupProgram]


@dataclass(frozen=True)
class Geometry:
    """One of the ways in which a harness can compile and run a chain. Archives do not depend on it, only speed does.

    Attributes
    ----------
    settings : tuple of (str, int)
        The harness's words for it, by which a choice is remembered.
    source : KernelSource
    """

    settings: tuple[tuple[str, int], ...]
    source: KernelSource

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.settings)


class Harness(ABC):
    """A fusion strategy. `name` is what `FusedOp.strategy` refers to.

    Attributes
    ----------
    geometry_version : int
        Raised when what the words of `Geometry.settings` stand for changes; choices made before are forgotten then.
    """

    name: str = ""
    geometry_version: int = 1

    @abstractmethod
    def refuse(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> str | None:
        """Return why `chain` (in stream order, one member or more) cannot run as one group, or None where it can."""

    @abstractmethod
    def program(
        self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int, geometry: Geometry | None = None
    ) -> GroupProgram:
        """Return the program of a chain that was not refused; compiles it, or finds it compiled.

        `geometry` is one of `geometries`, and is given only where a choice among several was made by `briquette.tuning`.
        """

    def geometries(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> Sequence[Geometry]:
        """Return the geometries among which measuring may choose, the harness's own choice first; none: there is no choice."""
        return ()

    def gain(self, chain: Sequence[Member]) -> int:
        """Return the launches that fusing `chain` removes; a group is installed when this is positive."""
        return len(chain) - 1

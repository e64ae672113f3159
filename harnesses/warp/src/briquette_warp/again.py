"""A run that comes again: the same group over another array of the same shape, with nothing looked up but addresses.

A call on a small array is nearly all host time, and most of that goes into finding what the call before has found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from briquette.graph import NodePort
from briquette.harness import GroupProgram, GroupRun, Repeated
from briquette.record import RunRecord

from .cuda_run import FLAG, HEAD, KEPT, given_of, nothing_aside

if TYPE_CHECKING:
    from .cuda_program import CudaProgram

#: makes launches at other addresses, and returns the head of the control block
Launches = Callable[[int, int], bytes]

_ZERO: Final = bytes(8)
#: devices and streams that are kept
_PLACES: Final = 16


class _At(NamedTuple):
    """An address of memory that is not kept alive by it."""

    pointer: int


@dataclass(eq=False)
class _Way:
    """The launches of one direction in one place: the addresses of the first run, and from the second on what was put down."""

    first: tuple[int, int] | None = None
    launches: Launches | None = None

    def head(self, session: Any, start: Callable[[Any, Sequence[int]], None], addresses: tuple[int, int]) -> bytes:
        """Launch, wait, and return the head of the control block: a shape that comes once need not be put down."""
        if self.launches is None and self.first is not None:
            self.launches = session.prepared(start, self.first, 8 * HEAD)
        if self.launches is not None:
            return self.launches(*addresses)
        self.first = addresses
        start(session, addresses)
        found: bytes = session.peek(addresses[1], 8 * HEAD)
        return found


@dataclass(eq=False)
class _Place:
    """A device and a stream, and the launches there; `program` decompresses."""

    session: Any
    forward: _Way = field(default_factory=_Way)
    inverse: _Way = field(default_factory=_Way)
    program: Any = None


class Again:
    """Runs a group over arrays of one shape, under one bound, and back.

    Parameters
    ----------
    program : CudaProgram
    session_of : callable
        Returns the target's session where an array lies.
    run : GroupRun
        What the runs are like.
    side : (str, str) or None
        The port of values kept aside.
    """

    def __init__(self, program: CudaProgram, session_of: Callable[[Any], Any], run: GroupRun, side: NodePort | None) -> None:
        self._program, self._session_of, self._run, self._side = program, session_of, run, side
        self._given, self._nbytes = given_of(run), program.places(run).end
        self._places: list[_Place] = []

    def _place(self, array: Any) -> _Place:
        for place in self._places:
            if place.session.serves(array):
                return place
        made = _Place(self._session_of(array))
        self._places = [made, *self._places[: _PLACES - 1]]
        return made

    def __call__(self, source: Any) -> tuple[RunRecord, Mapping[NodePort, Any]]:
        """Return the record and the values of a run over `source`, as the program's `forward` does."""
        place = self._place(source)
        session = place.session
        with session.current():
            control = session.memory(self._nbytes)
            heads = [place.forward.head(session, self._start, (source.pointer, control.pointer))]
            record = RunRecord()
            record.defer(self._program.filler(self._given, heads))
            if heads[0][8 * KEPT : 8 * KEPT + 8] != _ZERO:
                return record, self.values(session, source, control, record, heads)
        if self._side:
            record.results[self._side[0]] = {"outliers": 0}
        return record, _NothingAside(self, session, control, heads)

    def _start(self, session: Any, addresses: Sequence[int]) -> None:
        source, control = map(_At, addresses)
        self._program.start(self._program.laid(session, source, self._run, control))

    def values(self, session: Any, source: Any, control: Any, record: RunRecord, heads: list[bytes]) -> dict[NodePort, Any]:
        """Return the values of a run; the kernel that writes the side stream is launched where there is one."""
        work = self._program.laid(session, source, replace(self._run, record=record), control)
        work.heads = heads
        return self._program.found(work, self._program.main(work))

    def back(self, inverse: Callable[[], GroupProgram | None], control: Any, out: Any) -> bool:
        """Decompress what a run that kept nothing aside has left in `control`; False where no program does."""
        place = self._place(out)
        session = place.session
        with session.current():
            if place.program is None:
                place.program = inverse()
                if place.program is None:
                    return False
            start = partial(self._start_back, place.program)
            head = place.inverse.head(session, start, (out.pointer, control.pointer))
        place.program.check(head[8 * FLAG : 8 * FLAG + 4] != _ZERO[:4])
        return True

    def _start_back(self, program: CudaProgram, session: Any, addresses: Sequence[int]) -> None:
        out, control = map(_At, addresses)
        values: dict[NodePort, Any] = dict(self._program.capacity(self._program.laid(session, _At(0), self._run, control)))
        if self._side:
            values[self._side] = nothing_aside(self._run.chunks)
        program.enqueue_inverse(session, values, replace(self._run, out=out))


class _NothingAside(Repeated):
    """The values of a run that kept nothing aside, made when somebody looks at them: an archive is often only kept."""

    __slots__ = ("_again", "_control", "_heads", "_made", "_session")

    def __init__(self, again: Again, session: Any, control: Any, heads: list[bytes]) -> None:
        self._again, self._session, self._control, self._heads = again, session, control, heads
        self._made: dict[NodePort, Any] | None = None

    def _values(self) -> dict[NodePort, Any]:
        if self._made is None:
            self._made = self._again.values(self._session, _At(0), self._control, RunRecord(), self._heads)
        return self._made

    def __getitem__(self, port: NodePort) -> Any:
        return self._values()[port]

    def __iter__(self) -> Iterator[NodePort]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def back(self, inverse: Callable[[], GroupProgram | None], out: Any) -> bool:
        return self._again.back(inverse, self._control, out)

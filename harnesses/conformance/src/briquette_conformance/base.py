"""What every check is given, and how it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from briquette.errors import BriquetteError

from .cases import Case, Subject
from .data import Array, constant, is_float, ragged, smooth, sown, special
from .report import Fault, NotHere
from .ways import Places, Run, forward

Level = Literal["quick", "full"]


class Proof(NamedTuple):
    """What a check yields for what it has shown: the targets, and figures."""

    targets: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Options:
    """What a pack's own test module may add, and how thoroughly to look.

    Parameters
    ----------
    level : {"quick", "full"}
    inputs : callable, optional
        ``inputs(stage, dtype)`` gives further arrays for a stage and type.
    parameters : mapping of stage name to parameter sets
        Looked at beside the defaults.
    unsupported : mapping of stage name to mapping of target to reason
        Targets on which a stage's policy is declared not to run.
    frozen : Path, optional
        Folder of archives (``*.brq``) that releases of the pack wrote, each beside the array that it held (``*.npy``).
    """

    level: Level = "quick"
    inputs: Callable[[str, str], Sequence[Any]] | None = None
    parameters: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    unsupported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    frozen: Path | None = None


@dataclass(eq=False)
class Context:
    """The run that checks are part of."""

    pack: str
    options: Options
    places: Places
    subjects: tuple[Subject, ...]
    #: what is worked out once and looked at by several checks
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return self.options.level == "full"

    def excused(self, subject: Subject, target: str) -> str | None:
        """Return why the pack declares that the stage does not run on a target, or None."""
        return self.options.unsupported.get(subject.stage.name, {}).get(target)

    def fields(self, case: Case, n: int) -> Iterator[tuple[str, Array]]:
        """Yield inputs of `n` elements by what they are, read-only."""
        for name, make in (("smooth", smooth), ("special values", special), ("ragged", ragged), ("constant", constant)):
            x = make(n, case.dtype)
            x.flags.writeable = False
            yield name, x
        missing = [v for s in case.stages for v in s.missing_values()]
        if missing and is_float(case.dtype):
            yield "missing values", sown(smooth(n, case.dtype), missing)
        if self.options.inputs is not None and case.alone:
            for i, x in enumerate(self.options.inputs(case.stage.name, case.dtype)):
                yield f"the pack's own input {i}", x.reshape(-1)

    def reference(self, case: Case, x: Array, bound: Any = None, shape: tuple[int, ...] | None = None) -> Run:
        """Return what the NumPy reference, stage by stage, makes of `x`, the elements of an array of `shape` (default: 1-D)."""
        return forward(case.on(self.places.reference, "off"), x, case.bound if bound is None else bound, shape=shape)


CheckFunction = Callable[[Context, Subject], Iterator[Proof]]
PackFunction = Callable[[Context], Iterator[Proof]]


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes
    ----------
    name : str
    per_stage : bool
        Whether it looks at each stage, or at the pack.
    levels : tuple of str
        Those in which it runs.
    function : callable
    """

    name: str
    per_stage: bool
    levels: tuple[str, ...]
    function: Callable[..., Iterator[Proof]]

    @property
    def about(self) -> str:
        return (self.function.__doc__ or "").strip().split("\n")[0]


#: every check, in the order in which they run: what is cheap and tells most first
CHECKS: Final[dict[str, Check]] = {}


def check(name: str, *, per_stage: bool = True, full_only: bool = False) -> Callable[[Any], Any]:
    """Register a check."""

    def add(function: Callable[..., Iterator[Proof]]) -> Callable[..., Iterator[Proof]]:
        CHECKS[name] = Check(name, per_stage, ("full",) if full_only else ("quick", "full"), function)
        return function

    return add


def main_case(subject: Subject) -> Case:
    case = subject.main
    if case is None:
        raise NotHere("no chain of installed stages can be made with it; its output types and bound modes suit none")
    return case


def told(error: BaseException) -> str:
    """Return what an error of the pack's code says, with its kind where it is no error of briquette's."""
    text = str(error).strip() or type(error).__name__
    return text if isinstance(error, (BriquetteError, Fault)) else f"{type(error).__name__}: {text}"

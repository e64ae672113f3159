"""One entry point as the registry keeps it: whose it is, whether it was loaded, and what came of that."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from ._load import describe
from ._scan import GROUPS, FoundPack, name_problem
from .errors import DeclarationError
from .harness import Harness
from .packinfo import PackInfo
from .stage import Stage
from .target import Target

if TYPE_CHECKING:
    from ._scan import AnyPoint

State = Literal["loaded", "not loaded", "broken", "incompatible", "disabled", "shadowed"]


class Origin(NamedTuple):
    """Where a registered object comes from.

    Attributes
    ----------
    distribution, version : str
        Normalized name (PEP 503) and version of the pack.
    entry_point, value : str
        The name it is registered under, and the ``module:object`` that the name stands for.
    """

    distribution: str
    version: str
    entry_point: str
    value: str

    @property
    def qualified(self) -> str:
        """``distribution:name``, which is never ambiguous."""
        return f"{self.distribution}:{self.entry_point}"


@dataclass(eq=False)
class Pack:
    """A found pack and what is known about whether it may be used."""

    found: FoundPack
    disabled: bool = False
    admitted: bool = False  # its API ranges were looked at
    state: State | None = None  # set where the whole pack is refused
    refusal: str = ""
    notes: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.found.distribution} {self.found.version}"


@dataclass(eq=False)
class Entry:
    """One entry point of a pack."""

    pack: Pack
    point: AnyPoint
    state: Literal["unloaded", "loading", "loaded", "failed"] = "unloaded"
    value: object = None
    error: BaseException | None = None
    problem: str = ""  # what is wrong with it as registered, before any loading
    warned: bool = False

    def __post_init__(self) -> None:
        self.problem = name_problem(self.point.group, self.point.name) or ""

    @property
    def name(self) -> str:
        return self.point.name

    @property
    def kind(self) -> str:
        return GROUPS[self.point.group]

    @property
    def qualified(self) -> str:
        return f"{self.pack.found.distribution}:{self.name}"

    @property
    def origin(self) -> Origin:
        return Origin(self.pack.found.distribution, self.pack.found.version, self.name, self.point.value)

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name!r} of pack {self.pack}"

    def fault(self) -> str:
        """Return why the entry cannot be used, as far as is known, or nothing."""
        if self.pack.refusal:
            return self.pack.refusal
        if self.problem:
            return self.problem
        if self.error is None:
            return ""
        hint = ""
        if isinstance(self.error, ModuleNotFoundError) and self.error.name and _within(self.point.value, self.error.name):
            hint = f" (the pack's own files are not there; reinstall or uninstall {self.pack.found.distribution})"
        return describe(self.error) + hint

    def realize(self) -> object:
        """Import the object and check it; runs the pack's code, so it may do and raise anything."""
        return _CHECKS.get(self.point.group, _unchecked)(self.name, self.point.load())


def _within(value: str, module: str) -> bool:
    own = value.partition(":")[0].strip()
    return own == module or own.startswith(module + ".")


def _unchecked(name: str, found: object) -> object:
    return found


def _is_stage_class(found: object) -> type[Stage]:
    if not (inspect.isclass(found) and issubclass(found, Stage)):
        what = f"the class {found.__qualname__}" if inspect.isclass(found) else f"a {type(found).__name__}"
        raise DeclarationError(f"it is {what}, which is no subclass of briquette.stage.Stage")
    if found.format_version not in found.reads_versions:
        raise DeclarationError(
            f"{found.__qualname__} writes format version {found.format_version} but reads only "
            f"{', '.join(map(str, found.reads_versions)) or 'none'}; add it to reads_versions"
        )
    return found


def _stage(name: str, found: object) -> type[Stage]:
    cls = _is_stage_class(found)
    if cls.name != name:
        raise DeclarationError(f"{cls.__qualname__}.name is {cls.name!r}; it must equal the entry point's name")
    return cls


def _alias(name: str, found: object) -> type[Stage]:
    return _is_stage_class(found)


def _harness(name: str, found: object) -> Harness:
    made = found() if inspect.isclass(found) else found
    if not isinstance(made, Harness):
        raise DeclarationError(f"it makes a {type(made).__name__}, which is no briquette.harness.Harness")
    if made.name != name:
        raise DeclarationError(f"{type(made).__qualname__}.name is {made.name!r}; it must equal the entry point's name")
    return made


def _target(name: str, found: object) -> Target:
    made = found() if inspect.isclass(found) else found
    if not isinstance(made, Target):
        raise DeclarationError(f"it makes a {type(made).__name__}, which is no briquette.target.Target")
    if made.name != name:
        raise DeclarationError(f"{type(made).__qualname__}.name is {made.name!r}; it must equal the entry point's name")
    return made


def _preset(name: str, found: object) -> str:
    if hasattr(found, "read_text"):  # pathlib paths and importlib.resources' Traversable
        found = found.read_text(encoding="utf-8")
    elif callable(found):
        found = found()
    if not isinstance(found, str):
        raise DeclarationError(f"a preset is TOML text, a path, or a callable that returns text, not a {type(found).__name__}")
    return found


def _info(name: str, found: object) -> PackInfo:
    return PackInfo.of(found)


_CHECKS = {
    "briquette.stages": _stage,
    "briquette.harnesses": _harness,
    "briquette.targets": _target,
    "briquette.presets": _preset,
    "briquette.packs": _info,
    "briquette.aliases": _alias,
}

"""The kit as tests of a pack's own: a class to derive from, whose tests cannot be replaced unnoticed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from briquette.errors import DeclarationError

from .base import CHECKS, Context, Level, Options
from .cases import stage_names
from .report import Fault, Finding

#: what a subclass may set or define; other names of the kit are the kit's
_OPEN: Final = frozenset({"pack", "level", "parameters", "unsupported", "frozen", "inputs"})
#: the environment variable that decides the level where a class does not
LEVEL: Final = "BRIQUETTE_CONFORMANCE_LEVEL"


class PackConformance:
    """Derive a class from this in the pack's tests and name the pack; pytest then runs every check on every stage.

    Attributes
    ----------
    pack : str
        The distribution's name.
    level : {"quick", "full"}, optional
        Default: what BRIQUETTE_CONFORMANCE_LEVEL says, else quick.
    parameters : mapping of stage name to parameter sets
        Looked at beside each stage's defaults.
    unsupported : mapping of stage name to mapping of target to reason
        Targets on which a policy is declared not to run; what is not declared so is required.
    frozen : Path, optional
        Folder of archives that earlier releases wrote.

    Notes
    -----
    A subclass may add tests, and `inputs`. It may not redefine the kit's tests or mark them skipped: that is an error
    when the class is made, or a failure of ``test_nothing_of_the_kit_is_overridden``.
    """

    pack: ClassVar[str] = ""
    level: ClassVar[Level | None] = None
    parameters: ClassVar[Mapping[str, Sequence[Mapping[str, Any]]]] = {}
    unsupported: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    frozen: ClassVar[Path | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        taken = [n for n in vars(cls) if not n.startswith("__") and n in vars(PackConformance) and n not in _OPEN]
        if taken:
            raise DeclarationError(
                f"{cls.__qualname__} redefines {', '.join(sorted(taken))} of the kit; add tests under other names, or declare "
                f"what is not supported in `unsupported`"
            )
        if not cls.pack:
            raise DeclarationError(f"{cls.__qualname__} names no pack: write pack = 'your-distribution'")

    def inputs(self, stage: str, dtype: str) -> Sequence[Any]:
        """Return further arrays of `dtype` for a stage; override it."""
        return ()

    @classmethod
    def pytest_generate_tests(cls, metafunc: Any) -> None:
        """Make a test of every check, for the pack and for each of its stages."""
        own = {f for n, f in vars(PackConformance).items() if n.startswith("test_")}
        bad = [m.name for m in metafunc.definition.iter_markers() if m.name in ("skip", "skipif", "xfail")]
        if metafunc.function in own and bad:  # here, because a skipped test says nothing
            raise Fault(f"{cls.__qualname__} or its module marks tests of the kit {', '.join(bad)}")
        if "pack_check" in metafunc.fixturenames:
            metafunc.parametrize("pack_check", _names(cls, per_stage=False))
        if "stage_check" in metafunc.fixturenames:
            pairs = [(s, c) for s in stage_names(cls.pack) for c in _names(cls, per_stage=True)]
            metafunc.parametrize(("stage", "stage_check"), pairs, ids=[f"{s}-{c}" for s, c in pairs])

    def test_the_pack(self, pack_check: str) -> None:
        """One check of the pack as a whole."""
        self._hold(pack_check, None)

    def test_a_stage(self, stage: str, stage_check: str) -> None:
        """One check of one stage."""
        self._hold(stage_check, stage)

    def test_nothing_of_the_kit_is_overridden(self) -> None:
        """Tests replaced after the class was made are found here; marks that skip them, when tests are collected."""
        cls = type(self)
        for name in (n for n in vars(PackConformance) if n.startswith(("test_", "_hold", "pytest_generate"))):
            held = getattr(cls, name)
            own = getattr(PackConformance, name)
            if getattr(held, "__func__", held) is not getattr(own, "__func__", own):
                raise Fault(f"{cls.__qualname__}.{name} is not the kit's any more")

    def _hold(self, name: str, stage: str | None) -> None:
        import pytest

        from .running import findings_of

        ctx = _context(type(self))
        subjects = [None] if stage is None else [s for s in ctx.subjects if s.stage.name == stage]
        if not subjects:
            raise Fault(f"stage {stage!r} of {self.pack} could not be looked at: see the check 'loads'")
        found: list[Finding] = [f for subject in subjects for f in findings_of(CHECKS[name], ctx, subject)]
        failed = [f for f in found if f.status == "failed"]
        if failed:
            pytest.fail("\n".join(f"{f.subject}, {f.check}: {f.detail}" for f in failed), pytrace=False)
        skipped = [f for f in found if f.status == "skipped"]
        if skipped and len(skipped) == len(found):
            pytest.skip(f"{skipped[0].subject}, {skipped[0].check}: {skipped[0].detail}")


def _names(cls: type[PackConformance], per_stage: bool) -> list[str]:
    from .running import selected

    return [c.name for c in selected((), _level(cls)) if c.per_stage is per_stage]


def _level(cls: type[PackConformance]) -> Level:
    return cls.level or ("full" if os.environ.get(LEVEL) == "full" else "quick")


_contexts: dict[type, Context] = {}


def _context(cls: type[PackConformance]) -> Context:
    """Return the context of a class's tests, made once a process."""
    if cls not in _contexts:
        from .running import context

        made = cls()
        options = Options(_level(cls), made.inputs, cls.parameters, cls.unsupported, cls.frozen)
        _contexts[cls] = context(cls.pack, options)
    return _contexts[cls]

"""Runs the checks of a pack and keeps what they find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from briquette import discovery
from briquette.errors import BriquetteError, UsageError
from briquette.fpenv import in_ieee
from briquette.selection import REFERENCE

from . import checks_declared, checks_kernels, checks_numpy, checks_processes, checks_runs, checks_shipped  # noqa: F401
from .base import CHECKS, Check, Context, Options, told
from .cases import Subject, stage_names, subjects_of
from .report import Fault, Finding, NotHere, Report
from .ways import places


def context(pack: str, options: Options, stages: Sequence[str] = ()) -> Context:
    """Return what checks of `pack` (of all its stages, or of some) are given; broken ones are left out, as ``loads`` tells."""
    here = places()
    judge = next((p for p in here.kernels if p.name != "emulated"), None)
    subjects: tuple[Subject, ...] = ()
    if any(s.distribution == pack for s in discovery.registry().packs()):
        subjects = tuple(subjects_of(pack, options.parameters, judge, options.level == "full", stages))
    return Context(pack, options, here, subjects)


def version_of(pack: str) -> str:
    return next((s.version for s in discovery.registry().packs() if s.distribution == pack), "not installed")


def notes_of(ctx: Context) -> list[str]:
    """Return what the header of a report says."""
    found = [f"targets: {REFERENCE}, {', '.join(p.name for p in ctx.places.kernels)}".rstrip(", ")]
    found += [f"no {name}: {why}" for name, why in ctx.places.missing.items()]
    for subject in ctx.subjects:
        joined = [str(c) for c in subject.cases if not c.alone]
        found.append(f"{subject.title} is joined in: {'; '.join(joined) or 'nothing'}")
        found += [f"{subject.title}: no installed partners for {' + '.join([shape])}" for shape in subject.without]
    return found


#: the order in which checks run: what is cheap and tells most first, what takes processes of its own last
_ORDER: Final = (
    *("loads", "presets", "declaration", "pickle", "policy text", "expected groups", "types", "inverse", "state", "role"),
    *("pieces", "cost and room", "identity", "compiles", "geometries", "resolved", "shapes", "partial spans", "empty and tiny"),
    *("alignment", "determinism", "16 threads", "archive and TOML", "fresh process", "damage", "races", "memory"),
    *("GPU compiler", "GPU sanitizer", "speed", "two packs together", "frozen archives", "wheel"),
)


@in_ieee
def findings_of(check: Check, ctx: Context, subject: Subject | None) -> list[Finding]:
    """Run one check; whatever is raised becomes a finding."""
    title = ctx.pack if subject is None else subject.title
    begin = time.perf_counter()
    found: list[Finding] = []
    answers: Iterator[Any] = check.function(ctx) if subject is None else check.function(ctx, subject)
    try:
        for proof in answers:
            found.append(Finding(title, check.name, "proven", proof.targets, proof.detail, time.perf_counter() - begin))
            begin = time.perf_counter()
    except NotHere as exc:
        found.append(Finding(title, check.name, "skipped", (), str(exc), time.perf_counter() - begin))
    except (Fault, BriquetteError) as exc:
        found.append(Finding(title, check.name, "failed", (), told(exc), time.perf_counter() - begin))
    except Exception as exc:  # of the pack's code
        found.append(Finding(title, check.name, "failed", (), f"{told(exc)}{_where(exc, ctx)}", time.perf_counter() - begin))
    return found


def _where(exc: BaseException, ctx: Context) -> str:
    """Return the innermost line of the traceback that is none of briquette's own."""
    trace, found = exc.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if name.split(".")[0] not in ("briquette", __name__.split(".")[0], "numpy"):
            found = f" ({name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


def selected(names: Sequence[str], level: str) -> list[Check]:
    """Return the checks of a level, or those named, in the order in which they run."""
    unknown = [n for n in names if n not in CHECKS]
    if unknown:
        raise UsageError(f"there is no check {', '.join(map(repr, unknown))}; checks: {', '.join(CHECKS)}")
    found = [c for c in CHECKS.values() if (c.name in names if names else level in c.levels)]
    return sorted(found, key=lambda c: _ORDER.index(c.name))


def run(
    pack: str,
    options: Options | None = None,
    *,
    only: Sequence[str] = (),
    stages: Sequence[str] = (),
    fail_fast: bool = False,
    told_to: Callable[[Finding], None] | None = None,
) -> Report:
    """Check a pack.

    Parameters
    ----------
    pack : str
        Name of an installed distribution.
    options : Options, optional
    only : sequence of str
        Names of checks; empty: all of the level.
    stages : sequence of str
        Names of stages to look at; empty: all.
    fail_fast : bool
        Stop at the first fault.
    told_to : callable, optional
        Called with each finding as it is made.
    """
    options = options or Options()
    unknown = [name for name in stages if name not in stage_names(pack)]
    if unknown:
        raise UsageError(f"{pack} has no stage {', '.join(map(repr, unknown))}; stages: {', '.join(stage_names(pack)) or 'none'}")
    ctx = context(pack, options, stages)
    report = Report(pack, version_of(pack), options.level, notes_of(ctx))
    chosen = selected(only, options.level)

    def jobs() -> Iterator[tuple[Check, Subject | None]]:
        yield from ((c, None) for c in chosen if not c.per_stage and c.name in ("loads", "presets"))
        for subject in ctx.subjects:
            yield from ((c, subject) for c in chosen if c.per_stage)
        yield from ((c, None) for c in chosen if not c.per_stage and c.name not in ("loads", "presets"))

    for check, subject in jobs():
        for finding in findings_of(check, ctx, subject):
            report.findings.append(finding)
            if told_to is not None:
                told_to(finding)
        if fail_fast and report.count("failed"):
            break
    return report

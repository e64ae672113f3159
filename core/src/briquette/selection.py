"""Which target runs and in which fusion mode: the caller's word, else the environment's, else the best there is."""

from __future__ import annotations

import os
from typing import Final

from . import discovery
from .errors import LookupFailed, TargetUnavailable, UsageError
from .planner import FUSION_MODES
from .target import Target

#: the reference target, which core itself is
REFERENCE: Final = "numpy"


def choose_target(name: str | None) -> Target | None:
    """Return the target to run on; None stands for the NumPy reference.

    Raises
    ------
    TargetUnavailable
        Where `name` is installed but cannot run here.
    LookupFailed
        Where no such target is installed.
    """
    if name is None:
        name = discovery.settings().target
    if name == REFERENCE:
        return None
    if name is None:
        usable = [t for t in discovery.registry().targets() if t.unavailable() is None]
        return max(usable, key=lambda t: t.priority, default=None)
    try:
        target = discovery.registry().target(name)
    except LookupFailed as exc:
        raise LookupFailed(f"{exc}; {REFERENCE!r} is always there") from None
    reason = target.unavailable()
    if reason is not None:
        raise TargetUnavailable(f"target {name!r} cannot run here: {reason}")
    return target


def fusion_mode(asked: str | None) -> str:
    """Return the fusion mode; the environment's BRIQUETTE_FUSION overrides what the caller asked for."""
    mode = os.environ.get("BRIQUETTE_FUSION") or asked or "auto"
    if mode not in FUSION_MODES:
        raise UsageError(f"fusion {mode!r} is unknown; use one of {', '.join(FUSION_MODES)}")
    return mode


def thread_count(target: Target | None, asked: int | None) -> int:
    """Return how many threads a run uses; the NumPy reference uses one."""
    if asked is not None and (not isinstance(asked, int) or asked < 1):
        raise UsageError(f"threads must be a positive integer, not {asked!r}")
    return 1 if target is None else target.threads(asked if asked is not None else discovery.settings().threads)

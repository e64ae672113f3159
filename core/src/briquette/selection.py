"""Which target runs and in which fusion mode: the caller's word, else the environment's, else the best there is."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from . import discovery
from ._load import describe
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
        usable = [t for t in discovery.registry().targets() if why_unavailable(t) is None]
        return max(usable, key=lambda t: t.priority, default=None)
    try:
        target = discovery.registry().target(name)
    except LookupFailed as exc:
        raise LookupFailed(f"{exc}; {REFERENCE!r} is always there") from None
    reason = why_unavailable(target)
    if reason is not None:
        raise TargetUnavailable(f"target {name!r} cannot run here: {reason}")
    return target


def why_unavailable(target: Target) -> str | None:
    """Return in one line why `target` cannot run here, or None; a target that fails to say so cannot."""
    try:
        return target.unavailable()
    except (Exception, SystemExit) as exc:  # the fault of one pack, or of what it imports, stops nothing else
        return f"asking it failed: {describe(exc)}"


def target_of(x: Any) -> Target | None:
    """Return the target in whose memory the array `x` lies; None for host memory."""
    if isinstance(x, (np.ndarray, np.generic)):
        return None
    for target in discovery.registry().targets():
        if target.memory is not None and target.memory.owns(x):
            return target
    return None


def fusion_mode(asked: str | None) -> str:
    """Return the fusion mode; the environment's BRIQUETTE_FUSION overrides what the caller asked for."""
    mode = os.environ.get("BRIQUETTE_FUSION") or asked or "auto"
    if mode not in FUSION_MODES:
        source = ", which BRIQUETTE_FUSION asks for," if os.environ.get("BRIQUETTE_FUSION") else ""
        raise UsageError(f"fusion {mode!r}{source} is unknown; use one of {', '.join(FUSION_MODES)}")
    return mode


def thread_count(target: Target | None, asked: int | None) -> int:
    """Return how many threads a run uses; the NumPy reference uses one."""
    if asked is not None and (not isinstance(asked, int) or asked < 1):
        raise UsageError(f"threads must be a positive integer, not {asked!r}")
    return 1 if target is None else target.threads(asked if asked is not None else discovery.settings().threads)

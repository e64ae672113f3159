"""Which target runs and in which fusion mode: the caller's word, else the environment's, else the best there is."""

from __future__ import annotations

import operator
import os
from typing import Any, Final

import numpy as np

from . import discovery
from ._load import describe
from ._names import shown
from .arena import ALLOCATIONS
from .arrays import Source, as_source, in_memory
from .errors import LookupFailed, TargetUnavailable, UsageError
from .planner import FUSION_MODES
from .settings import MAX_THREADS
from .target import Target

#: the reference target, which core itself is
REFERENCE: Final = "numpy"

_recent_home: tuple[discovery.Registry, type, Target] | None = None


def choose_target(name: str | None) -> Target | None:
    """Return the target to run on; None stands for the NumPy reference.

    Raises
    ------
    TargetUnavailable
        Where `name` is installed but cannot run here.
    LookupFailed
        Where no such target is installed.
    """
    name = _checked("target", name)
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
    global _recent_home
    if isinstance(x, (np.ndarray, np.generic)):
        return None
    registry, recent = discovery.registry(), _recent_home
    # where the last one lay the next one likely lies: going through all targets takes as long as a kernel's launch
    if recent is not None and recent[0] is registry and recent[1] is type(x) and _owns(recent[2], x):
        return recent[2]
    for target in registry.targets():
        if _owns(target, x):
            _recent_home = registry, type(x), target
            return target
    return None


def _owns(target: Target, x: Any) -> bool:
    try:
        return target.memory is not None and target.memory.owns(x)
    except Exception:  # of the foreign object, which as_source reports when it asks for the data
        return False


def fusion_mode(asked: str | None) -> str:
    """Return the fusion mode; the environment's BRIQUETTE_FUSION overrides what the caller asked for."""
    mode = os.environ.get("BRIQUETTE_FUSION") or _checked("fusion", asked) or "auto"
    if mode not in FUSION_MODES:
        source = ", which BRIQUETTE_FUSION asks for," if os.environ.get("BRIQUETTE_FUSION") else ""
        raise UsageError(f"fusion {mode!r}{source} is unknown; use one of {', '.join(FUSION_MODES)}")
    return mode


def placed(x: Any, target: str | None, stream: Any = None) -> tuple[Source, str | None]:
    """Return the input as a source, and the target to run on: where a device array lies, unless another is named."""
    home = target_of(x)
    if home is None:
        return as_source(x), target
    assert home.memory is not None
    if target in (None, home.name):
        return in_memory(x, home.memory, stream), home.name
    return as_source(home.memory.download(home.memory.view(x, stream))), target


def thread_count(target: Target | None, asked: int | None) -> int:
    """Return how many threads a run uses; the NumPy reference uses one.

    Raises
    ------
    UsageError
        Where `asked` is no integer (of any kind but bool) from 1 to 1024, on whatever target.
    """
    if asked is not None:
        try:
            count = operator.index(asked)
        except Exception:  # __index__ may be foreign code
            count = 0
        if isinstance(asked, bool) or not 1 <= count <= MAX_THREADS:
            raise UsageError(f"threads must be an integer in 1 to {MAX_THREADS}, not {shown(asked)}")
        asked = count
    return 1 if target is None else target.threads(asked if asked is not None else discovery.settings().threads)


def allocation_strategy(asked: str | None) -> str:
    """Return where streams between steps are to lie; by default each in memory of its own."""
    strategy = _checked("allocation", asked) or ALLOCATIONS[0]
    if strategy not in ALLOCATIONS:
        raise LookupFailed(f"allocation {strategy!r} is unknown; use one of {', '.join(ALLOCATIONS)}")
    return strategy


def check_options(target: str | None, fusion: str | None, allocation: str | None, threads: int | None) -> None:
    """Raise `UsageError` for options that no run could take; whether the target is there is for `choose_target` to say."""
    _checked("target", target)
    fusion_mode(fusion)
    allocation_strategy(allocation)
    thread_count(None, threads)


def _checked(option: str, value: str | None) -> str | None:
    """Return what the caller gave for `option`, which must be a name or None."""
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{option}={shown(value)} is a {type(value).__name__}; give a name, a str, or None for the default")
    return value

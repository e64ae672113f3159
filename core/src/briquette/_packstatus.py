"""What `briquette packs` shows of a pack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ._entries import Entry, Pack, State


@dataclass(frozen=True)
class PackStatus:
    """One line of `briquette packs`.

    Attributes
    ----------
    distribution, version, location : str
    names : mapping
        Kind (``stages``, ``harnesses``, ...) to the names registered, sorted.
    state : str
        ``loaded``: something of it is in use. ``not loaded``: nothing has been asked of it. ``broken``: something in it
        failed; the rest of it works. ``incompatible``: written for other API versions. ``disabled``: by the user.
        ``shadowed``: another copy stands earlier on the path.
    reasons : tuple of str
        Why it is broken, incompatible, disabled or shadowed.
    notes : tuple of str
        What it printed while loading, names it shares with other packs.
    """

    distribution: str
    version: str
    location: str
    names: Mapping[str, tuple[str, ...]]
    state: State
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons)


def status(pack: Pack, rivals: Callable[[Entry], Sequence[Entry]]) -> PackStatus:
    """Return the state of a pack as far as it is known; `rivals` gives the entries of other packs with a name alike."""
    names: dict[str, list[str]] = {}
    reasons = [reason for reason in (pack.refusal, pack.found.fault) if reason]
    notes = list(pack.notes)
    for entry in pack.entries:
        names.setdefault(entry.point.group.partition(".")[2], []).append(entry.name)
        if pack.refusal:
            continue
        if entry.fault():
            reasons.append(f"{entry.kind} {entry.name!r}: {entry.fault()}")
        others = rivals(entry)
        if others:
            who = ", ".join(str(e.pack) for e in others)
            notes.append(f"{entry.kind} {entry.name!r} is also registered by {who}; write {entry.qualified!r}")
    used = any(entry.state == "loaded" for entry in pack.entries)
    state: State = pack.state or ("broken" if reasons else "loaded" if used else "not loaded")
    return PackStatus(
        pack.found.distribution,
        pack.found.version,
        pack.found.location,
        {kind: tuple(sorted(set(listed))) for kind, listed in names.items()},
        state,
        tuple(reasons),
        tuple(notes),
    )

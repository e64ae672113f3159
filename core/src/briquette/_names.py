"""What names may be, and how messages show values that may be anything."""

from __future__ import annotations

from typing import Final

#: characters of a name or version, at most
MAX_NAME: Final = 255
_SHOWN: Final = 80


def unfit(name: str) -> str | None:
    """Return why an archive cannot hold the name or version `name`, or None."""
    if len(name) > MAX_NAME or not name.isprintable():
        return f"{name[:40]!r} has {len(name)} characters of at most {MAX_NAME}, or unprintable ones"
    return None


def shown(value: object) -> str:
    """Return `value` for a message: its representation, cut short, or its type where it has none."""
    try:
        text = repr(value)
    except Exception:  # of a foreign object; an int of more than 4,300 digits has none either
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... (a {type(value).__name__})"

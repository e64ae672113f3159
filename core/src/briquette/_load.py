"""Run a pack's code so that whatever it does, short of ending the process, is kept instead of spreading."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TextIO, cast

#: loads that take longer are noted, in seconds
SLOW: Final = 1.0
#: characters of captured output that a note shows
_SHOWN: Final = 200


class _Capture:
    """Stands in for `sys.stdout`, keeping what one thread writes; not a file itself, so that its end closes none.

    Other threads, and code that kept a reference to it after the load, write to the stream below.
    """

    def __init__(self, below: TextIO) -> None:
        self._below = below
        self._owner: int | None = threading.get_ident()
        self._text = io.StringIO()

    def write(self, text: str) -> int:
        return (self._text if threading.get_ident() == self._owner else self._below).write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def finish(self) -> str:
        self._owner = None
        return self._text.getvalue()


class Outcome(NamedTuple):
    """What became of a load: a value or an error, and notes on what else it did."""

    value: object = None
    error: BaseException | None = None
    notes: tuple[str, ...] = ()


def guarded(work: Callable[[], object]) -> Outcome:
    """Call `work`; return its value, or whatever it raised, except `KeyboardInterrupt`, which is the user's.

    What the calling thread prints to `sys.stdout` meanwhile (not what C code writes to the descriptor) becomes a
    note, because standard output may be carrying an archive.
    """
    before = sys.stdout
    capture = _Capture(before)
    start = time.perf_counter()
    value: object = None
    error: BaseException | None = None
    sys.stdout = cast(TextIO, capture)
    try:
        value = work()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # SystemExit and its like must not end the program
        error = exc
    finally:
        if cast(object, sys.stdout) is capture:
            sys.stdout = before
        printed = capture.finish()
    seconds = time.perf_counter() - start
    notes = []
    if printed.strip():
        text = printed.strip()
        notes.append(f"printed while loading: {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'!r}")
    if seconds > SLOW:
        notes.append(f"took {seconds:.1f} s to load")
    return Outcome(value, error, tuple(notes))


def describe(error: BaseException) -> str:
    """Return one line on an error: its type and message."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception of the pack, whose __str__ is the pack's code too
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

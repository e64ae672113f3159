"""Exit codes, and how errors become them."""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Final

import click


class ExitCode(IntEnum):
    """What the exit status of `briquette` means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    BAD_DATA = 3
    BOUND_VIOLATED = 4
    MISSING = 5


EXIT_CODES_HELP: Final = """\b
Exit codes:
  0  success
  1  any other failure (no space left, a compiler's error, ...)
  2  usage: an option, a pipeline or an input that cannot work as given,
     a file that is not there or may not be read
  3  bad data: what an archive or input file holds is damaged
  4  bound violated: a reconstruction misses its bound (verify, --check)
  5  a pack, stage, preset or target is missing, broken or cannot run here
"""


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code that `error` stands for."""
    from briquette import errors

    if isinstance(error, errors.BoundViolation):
        return ExitCode.BOUND_VIOLATED
    if isinstance(error, (errors.LookupFailed, errors.PackError, errors.TargetUnavailable)):
        return ExitCode.MISSING
    if isinstance(error, errors.ArchiveError):
        return ExitCode.BAD_DATA
    if isinstance(error, (errors.UsageError, errors.FusionError, click.UsageError)):
        return ExitCode.USAGE
    return ExitCode.FAILURE


def message(error: BaseException) -> str:
    """Return what `error` says, its own line breaks kept (a compiler's error shows source)."""
    if isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        text = f"{name}{error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory{f': {error}' if str(error) else ''}"
    else:
        text = str(error)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "\n".join(lines) or type(error).__name__


def is_expected(error: BaseException) -> bool:
    """Return whether `error` is one that people meet in the course of things, not a fault of the program."""
    from briquette.errors import BriquetteError

    return isinstance(error, (BriquetteError, click.ClickException, OSError, MemoryError))


def is_broken_pipe(error: BaseException) -> bool:
    """Return whether `error` only says that whoever reads our output has enough."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE

"""What people and scripts read: numbers in words, tables, JSON, progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import click

if TYPE_CHECKING:
    from rich.console import Console

    from briquette.bounds import BoundReport

#: columns of a table that goes to a file or a pipe, where nothing should be cut
_PIPE_WIDTH = 240


def console(stderr: bool = False) -> Console:
    """Return a console as wide as COLUMNS or the terminal, or wide enough for any table where there is neither."""
    from rich.console import Console

    found = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not found.is_terminal and not os.environ.get("COLUMNS", "").isdigit():  # rich takes COLUMNS itself
        found = Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH)
    return found


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print a table; the columns named in `right` hold numbers: aligned at their right, never broken."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    vertical: Literal["top", "bottom"] = "bottom" if right else "top"
    for i, name in enumerate(columns):
        number = name in right
        whole = number or i == 0  # names are for copying
        table.add_column(Text(name), justify="right" if number else "left", no_wrap=whole, overflow="fold", vertical=vertical)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console().print(table)


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """Print names and values, one a line."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        click.echo(f"{name:<{width}}  {value}")


def print_json(value: Any) -> None:
    """Write `value` to standard output as JSON; numbers JSON has no word for (inf, nan) become null."""
    click.echo(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """Return `value` made of what JSON has."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, (str, bool)) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def size_words(count: int) -> str:
    """Return a number of bytes in decimal units: ``475 kB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            return f"{count} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def count_words(count: int, thing: str) -> str:
    """Return ``1 value``, ``2 values``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def violation_words(bound: BoundReport) -> str:
    """Return what a comparison found wrong: how many values, and which is the first."""
    return (
        f"{count_words(bound.violations, 'value')} beyond the bound, "
        f"{count_words(bound.specials_changed, 'special value')} (NaN, infinity) changed, "
        f"the first at index {bound.first_violation:,}"
    )


def mode_words(mode: str) -> str:
    """Return a bound's mode as people read it."""
    words = {"rel": "range-relative", "noa": "range-relative", "abs": "absolute", "pwrel": "point-wise relative"}
    return words.get(mode, mode)


def error_words(mode: str | None) -> str:
    """Return what the largest error of a run under a bound of `mode` is called: point by point it is relative."""
    return "largest relative error" if mode == "pwrel" else "largest error"


def shape_words(shape: Sequence[int]) -> str:
    return " x ".join(str(n) for n in shape) if shape else "scalar"


def rate_words(nbytes: int, seconds: float) -> str:
    """Return megabytes (10**6 bytes) a second."""
    return f"{nbytes / seconds / 1e6:,.0f}" if seconds > 0 else "-"


def decibels(psnr: float | None) -> str:
    if psnr is None:
        return "-"
    return "exact" if psnr == math.inf else "undefined" if psnr == -math.inf else f"{psnr:.1f}"


def psnr_words(psnr: float | None) -> str:
    """Return a PSNR with its unit, "exact", or "undefined" where all values are the same."""
    text = decibels(psnr)
    return f"{text} dB" if text[0].isdigit() else text


class Progress(Protocol):
    """Told what is being done, and how far it is."""

    def __call__(self, what: str, done: int = 0, total: int = 0) -> None: ...


def _silent(what: str, done: int = 0, total: int = 0) -> None:
    return None


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Show progress on standard error while the block runs, where that is a terminal."""
    if not sys.stderr.isatty():
        yield _silent
        return
    with console(stderr=True).status("") as status:

        def show(what: str, done: int = 0, total: int = 0) -> None:
            status.update(f"{what} ({done}/{total})" if total else what)

        yield show

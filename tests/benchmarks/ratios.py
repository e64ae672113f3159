"""Ratio table: every installed preset on every file of a data folder at range-relative bounds.

    python tests/benchmarks/ratios.py DATA [--bounds 1e-2 1e-3 1e-4] [--presets NAME ...] [--into docs/benchmarks.md]

DATA holds a README.md whose table lists the files, as the tests read it; without one, every .npy file counts. Each archive
is decompressed and the bound checked exactly, for every value, before its ratio is printed; one that misses it ends the
program with status 1. A preset that takes no bound must give every bit back and has a table of its own. `--into` replaces
the table that stands between the markers of a markdown file.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery
from briquette.errors import BriquetteError, UsageError

BEGIN, END = "<!-- ratios.py: begin -->", "<!-- ratios.py: end -->"
#: original and archive bytes, or why there is no archive
Cell = tuple[int, int] | str


def listed(folder: Path) -> list[Path]:
    """Return the files that the folder's README.md lists, all of which must be there; else its .npy files by name."""
    readme = folder / "README.md"
    names = re.findall(r"^\| `([^`]+\.npy)` \|", readme.read_text(encoding="utf-8"), re.MULTILINE) if readme.is_file() else []
    paths = [folder / name for name in names] or sorted(folder.glob("*.npy"))
    absent = [path.name for path in paths if not path.is_file()]
    if absent or not paths:
        sys.exit(f"{folder}: {'lists files that are not there: ' + ', '.join(absent) if absent else 'no .npy file'}")
    return paths


def measure(x: NDArray[Any], preset: str, bound: float | None) -> Cell:
    """Return what one archive takes, once it has been decompressed and every value checked."""
    try:
        result = bq.compress_run(x, bound, "rel", pipeline=preset)
    except UsageError as exc:  # the preset does not take such data
        return str(exc)
    report = bq.verify(result.archive, x)
    back = bq.decompress(result.archive)
    whole = back.dtype == x.dtype and back.shape == x.shape
    if not (report.ok and whole and (bound is not None or np.array_equal(back, x, equal_nan=x.dtype.kind == "f"))):
        sys.exit(f"preset {preset} at {bound}: the archive does not keep its bound: {report}")
    return result.original_bytes, result.archive_bytes


def lossless(preset: str) -> bool:
    return not any(stage.needs_bound for stage in bq.Pipeline.from_preset(preset).graph.nodes.values())


def table(paths: Sequence[Path], presets: Sequence[str], bounds: Sequence[float | None]) -> list[str]:
    """Return a table: a row for each file and bound, then for each bound all files together and the geometric mean."""
    first = ["file"] if bounds == [None] else ["file", "bound"]
    lines = [_row([*first, *presets]), _row(["---"] * len(first) + ["---:"] * len(presets))]
    cells: dict[tuple[float | None, str], list[Cell]] = {}
    notes: dict[str, str] = {}
    for path in paths:
        x = np.load(path)
        for bound in bounds:
            found = [measure(x, preset, bound) for preset in presets]
            print(path.stem, bound, found, file=sys.stderr)
            for preset, cell in zip(presets, found, strict=True):
                cells.setdefault((bound, preset), []).append(cell)
                if isinstance(cell, str):
                    notes[preset] = cell
            lines.append(_row([path.stem, *_bound_words(bound), *map(_ratio_words, found)]))
    for label, mean in (("all files together", _together), ("geometric mean", _geometric)):
        for bound in bounds:
            lines.append(_row([f"**{label}**", *_bound_words(bound), *(mean(cells[bound, preset]) for preset in presets)]))
    return [*lines, "", *(f"- `{preset}`, where there is no ratio: {why}" for preset, why in notes.items())]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bound_words(bound: float | None) -> list[str]:
    return [] if bound is None else [f"{bound:.0e}".replace("e-0", "e-")]


def _ratio_words(cell: Cell) -> str:
    return "-" if isinstance(cell, str) else f"{cell[0] / cell[1]:.2f}"


def _together(cells: Sequence[Cell]) -> str:
    counted = [c for c in cells if not isinstance(c, str)]
    return f"{sum(c[0] for c in counted) / sum(c[1] for c in counted):.2f}" if counted else "-"


def _geometric(cells: Sequence[Cell]) -> str:
    ratios = [c[0] / c[1] for c in cells if not isinstance(c, str)]
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}" if ratios else "-"


def made(paths: Sequence[Path], presets: Sequence[str], bounds: Sequence[float | None]) -> str:
    """Return the tables in markdown."""
    lossy, exact = [p for p in presets if not lossless(p)], [p for p in presets if lossless(p)]
    lines = table(paths, lossy, bounds) if lossy else []
    if exact:
        lines += ["", "Without loss:", "", *table(paths, exact, [None])]
    return "\n".join(lines).strip() + "\n"


def place(text: str, into: Path) -> None:
    """Put `text` between the markers of a markdown file."""
    page = into.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        sys.exit(f"{into} has no place for the table: it needs the line {BEGIN} and, after it, the line {END}, once each")
    head, _, rest = page.partition(BEGIN)
    into.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of .npy files")
    parser.add_argument("--bounds", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4], help="range-relative")
    parser.add_argument("--presets", nargs="+", help="default: every one that is installed")
    parser.add_argument("--into", type=Path, metavar="FILE.md", help="replace the table of this file; default: print it")
    args = parser.parse_args(arguments)
    try:
        text = made(listed(args.data), args.presets or discovery.registry().presets(), args.bounds)
    except BriquetteError as exc:
        sys.exit(str(exc))
    if args.into:
        place(text, args.into)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

"""``briquette demo``: a real field through every preset, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import briquette as bq
from briquette import discovery
from briquette.bounds import resolve
from briquette.errors import BoundViolation, BriquetteError, LookupFailed
from briquette.record import Bound
from briquette.selection import REFERENCE, choose_target, why_unavailable

from . import options, tables
from .measure import Contender, Timing, fusion_modes, race, speedups

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FIELD = "ocean_sst_nemo_f32.npy"
_WHAT = "sea-surface temperature, January 2015, NEMO ocean model"
_UNIT = "degrees Celsius"
#: the bundled field is far smaller than what people compress: times are taken on copies of it that fill this many bytes
_TIMED_BYTES = 16_000_000


@click.command()
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("demo-out"), show_default=True, metavar="DIR"
)
@options.bound_options(default="1e-3", mode="rel", point_wise=False)
@options.target_option
@options.threads_option
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True, help="Timed runs of each; the median counts.")
@options.json_option
def demo(out: Path, eb: str | None, mode: str, target: str | None, threads: int | None, repeat: int, as_json: bool) -> None:
    """Compress a bundled real field with every preset: a table of ratio, PSNR, largest error and speed, and a picture in DIR.

    The bound is verified exactly, value by value. Where the default target cannot run, the demo runs on numpy.
    """
    import numpy as np

    bound = options.parse_bound(eb, mode)
    where = choose_target(target)
    name = REFERENCE if where is None else where.name
    with (resources(__package__) / "data" / _FIELD).open("rb") as file:
        field = np.load(file, allow_pickle=False)
    presets = _presets()
    copies = max(_TIMED_BYTES // field.nbytes, 1)
    modes = fusion_modes(("auto",) if where is None else ("off", "auto"))
    contenders = [Contender(p, pipe, name, fusion) for p, pipe in presets for fusion in modes]
    if not as_json:
        _intro(field, eb, mode, None if target else _why_numpy(where))
    with tables.progress() as show:
        timings = race(np.tile(field, (copies, 1)), bound, mode, contenders, threads=threads, repeat=repeat, show=show)
        show("verifying bounds")
        rows = [_row(field, bound, mode, p, pipe, timings, copies * field.nbytes) for p, pipe in presets]
        show("drawing")
        picture, shown = _draw(out, field, rows[0], mode, eb)
    facts = {
        "field": {"what": _WHAT, "dtype": field.dtype.name, "shape": field.shape, "bytes": field.nbytes},
        "bound": {"mode": mode, "eb": bound, "absolute": rows[0]["eb"]},
        "target": name,
        "timed_bytes": copies * field.nbytes,
        "repeat": repeat,
        "presets": [{k: v for k, v in row.items() if k != "archive"} for row in rows],
        "picture": picture,
    }
    if as_json:
        tables.print_json(facts)
    else:
        _tell(facts, shown)
    missed = [row["preset"] for row in rows if not row["bound_kept"]]
    if missed:
        raise BoundViolation(f"the reconstructions of {', '.join(missed)} miss the bound")


def _presets() -> list[tuple[str, Any]]:
    """Load every preset that takes a float32 field; say which ones do not, and why."""
    found = []
    for name in options.all_presets():
        try:
            pipe = bq.Pipeline.from_preset(name)
            pipe.graph.types("float32")
        except BriquetteError as exc:
            click.echo(f"warning: preset {name} is left out: {exc}", err=True)
        else:
            found.append((name, pipe))
    if not found:
        raise LookupFailed("none of the presets works here; run: briquette packs")
    return found


def _why_numpy(where: object) -> str | None:
    """Return one line on why the demo runs on the reference, where it does and nobody asked for that."""
    if where is not None:
        return None
    reasons = [f"{t.name}: {reason}" for t in discovery.registry().targets() if (reason := why_unavailable(t)) is not None]
    why = "; ".join(reasons) or "no other target is installed"
    return f"running on the numpy target, where nothing is compiled or fused ({why})"


def _intro(field: NDArray[np.generic], eb: str | None, mode: str, note: str | None) -> None:
    import numpy as np

    land = np.count_nonzero(np.isnan(field)) / field.size
    click.echo(
        f"{_WHAT}: {field.dtype.name}, {tables.shape_words(field.shape)}, {tables.size_words(field.nbytes)}, "
        f"{land:.0%} NaN (land)"
    )
    click.echo(f"bound: {tables.mode_words(mode)} {eb}")
    if note:
        click.echo(note)


def _row(
    field: NDArray[np.generic],
    bound: float | None,
    mode: str,
    preset: str,
    pipe: Any,
    timings: Sequence[Timing],
    timed_bytes: int,
) -> dict[str, Any]:
    """Compress the field itself (the timed copies would flatter the ratio), verify it, and add the times."""
    mine = [t for t in timings if t.contender.name == preset]
    run = bq.compress_run(field, bound, mode, pipeline=pipe, target=mine[-1].contender.target)
    report = bq.verify(run.archive, field).bound
    if report is None:
        raise BriquetteError(f"verify gave no bound report for preset {preset}")
    faster = speedups(mine)
    rates = {
        way: {"staged" if t.contender.fusion == "off" else "fused": timed_bytes / getattr(t, way) / 1e6 for t in mine}
        for way in ("compress", "decompress")
    }
    absolute = run.eb if run.eb is not None else resolve(Bound(bound or 0.0, mode), field)  # raw archives resolve none
    return {
        "preset": preset,
        "ratio": run.ratio,
        "psnr": report.psnr,
        "eb": absolute,
        "largest_error": report.largest_error,
        "bound_kept": report.ok,
        "outliers": run.outliers,
        "mb_per_s": rates,
        "speedup": dict(zip(("compress", "decompress"), next(iter(faster.values())), strict=True)) if faster else None,
        "fused": {"compress": run.plan.forward.groups, "decompress": run.plan.inverse.groups},
        "first_seconds": sum(t.first for t in mine),
        "archive": bytes(run.archive),
    }


def _draw(out: Path, field: NDArray[np.generic], row: dict[str, Any], mode: str, eb: str | None) -> tuple[Path, str]:
    from .picture import draw

    out.mkdir(parents=True, exist_ok=True)
    path = out / "demo.png"
    title = (
        f"{_WHAT}\n"
        f"preset {row['preset']}, bound {tables.mode_words(mode)} {eb} ({row['eb']:.3g} {_UNIT}), "
        f"ratio {row['ratio']:.1f}, PSNR {tables.psnr_words(row['psnr'])}"
    )
    draw(path, field, bq.decompress(row["archive"]), row["eb"], title, _UNIT)
    return path, row["preset"]


def _tell(facts: dict[str, Any], shown: str) -> None:
    rows = []
    for row in facts["presets"]:
        cells = [row["preset"], f"{row['ratio']:.2f}", tables.decibels(row["psnr"]), f"{row['largest_error'] / row['eb']:.4f}"]
        for way in ("compress", "decompress"):
            rates = row["mb_per_s"][way]
            for how, rate in rates.items():
                gain = f" ({row['speedup'][way]:.1f}x)" if how == "fused" and row["speedup"] else ""
                cells.append(f"{rate:,.0f}{gain}")
        rows.append(cells)
    ways = [facts["target"]] if facts["target"] == REFERENCE else list(facts["presets"][0]["mb_per_s"]["compress"])
    columns = [
        "preset",
        "ratio",
        "PSNR\ndB",
        "error/\nbound",
        *(f"{way}\n{how}" for way in ("compress", "decompress") for how in ways),
    ]
    tables.print_table(columns, rows, right=columns[1:])
    click.echo("the bound holds for every value" if all(r["bound_kept"] for r in facts["presets"]) else "THE BOUND IS VIOLATED")
    click.echo(
        f"MB/s on {facts['target']}: {tables.count_words(facts['repeat'], 'run')}, the median of each, on the field repeated to "
        f"{tables.size_words(facts['timed_bytes'])}; "
        f"planning and first compile ({sum(r['first_seconds'] for r in facts['presets']):.1f} s) not counted"
    )
    for row in facts["presets"]:
        both = [" | ".join(" + ".join(g) for g in row["fused"][way]) for way in ("compress", "decompress")]
        if both[0] or both[1]:
            ways_text = (
                f"both ways: {both[0]}"
                if both[0] == both[1]
                else f"compress: {both[0] or 'nothing'}; decompress: {both[1] or 'nothing'}"
            )
            click.echo(f"fused in {row['preset']}, {ways_text}")
    click.echo(f"picture of {shown}: {facts['picture']}")

"""``briquette bench``: pipelines, targets and fusion modes side by side, in one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import briquette as bq
from briquette.errors import BoundViolation, UsageError
from briquette.selection import REFERENCE, choose_target

from . import files, options, tables
from .exits import ExitCode
from .measure import Contender, Timing, fusion_modes, race, speedups

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from briquette import Pipeline

_COLUMNS = ["pipeline", "target", "fusion", "kernels", "ratio", "compress\nMB/s", "x", "decompress\nMB/s", "x"]
_RIGHT = _COLUMNS[3:]


@click.command()
@click.argument("sources", metavar="[FILE]...", nargs=-1, type=options.in_path)
@click.option(
    "--pipeline", "pipelines", multiple=True, metavar="NAME|FILE.toml", help="Several are compared (default: every preset)."
)
@options.bound_options(default="1e-3", mode="rel")
@click.option(
    "--target", "targets", multiple=True, metavar="NAME", help="Several are compared (default: numpy and the default target)."
)
@click.option(
    "--fusion",
    "modes",
    multiple=True,
    type=click.Choice(["off", "auto", "force"]),
    help="Several are compared (default: off and auto).",
)
@options.threads_option
@click.option("--repeat", type=click.IntRange(min=1), default=5, show_default=True, help="Timed runs of each; the median counts.")
@click.option(
    "--size", type=click.FloatRange(min=0.01), default=64.0, show_default=True, metavar="MB", help="Of the synthetic field."
)
@options.dtype_option
@options.shape_option
@options.json_option
@click.pass_context
def bench(
    ctx: click.Context,
    sources: tuple[Path, ...],
    pipelines: tuple[str, ...],
    eb: str | None,
    mode: str,
    targets: tuple[str, ...],
    modes: tuple[str, ...],
    threads: int | None,
    repeat: int,
    size: float,
    dtype: str | None,
    shape: str | None,
    as_json: bool,
) -> None:
    """Compare pipelines, targets and fusion modes on FILEs, or on a synthetic smooth field, in one run.

    All contenders take turns; each reported time is a median. The columns headed x say how many times faster a fused plan is
    than the staged one on the same target. Planning and compiling come first and are not in the times. Every archive is checked:
    the bound is verified, and all contenders of a pipeline must give the same bytes.
    """
    bound = options.parse_bound(eb, mode)
    contenders = list(_contenders(pipelines, targets, modes))
    reports = []
    violated = False
    for name, array in _inputs(sources, size, dtype, shape):
        with tables.progress() as show:
            timings = race(array, bound, mode, contenders, threads=threads, repeat=repeat, show=show)
            show("checking bounds")
            checks = _check(array, timings)
        violated = violated or not all(c["bound_kept"] for c in checks.values())
        reports.append(_report(name, array, timings, checks))
        if not as_json:
            _print(reports[-1], eb, mode, repeat)
    if as_json:
        tables.print_json({"eb": bound, "mode": mode, "threads": threads, "repeat": repeat, "inputs": reports})
    if violated:
        raise BoundViolation("a reconstruction misses its bound; see the report")
    if any(not c["identical"] for r in reports for c in r["checks"].values()):
        click.echo("error: contenders of one pipeline gave different archives; see the report", err=True)
        ctx.exit(ExitCode.FAILURE)


def _contenders(pipelines: Sequence[str], targets: Sequence[str], modes: Sequence[str]) -> Iterator[Contender]:
    names = list(dict.fromkeys(targets))
    if not names:
        default = choose_target(None)
        names = [REFERENCE] if default is None else [REFERENCE, default.name]
    for name in names:
        choose_target(name)  # refuse before anything is timed
    loaded: list[tuple[str, Pipeline]] = [(p, options.load_pipeline(p)) for p in pipelines or options.all_presets()]
    for label, pipe in loaded:
        for target in names:
            # the reference has no kernels to fuse: one line for it is enough
            for fusion in fusion_modes(modes or (("auto",) if target == REFERENCE else ("off", "auto"))):
                yield Contender(label, pipe, target, fusion)


def _inputs(
    sources: Sequence[Path], size: float, dtype: str | None, shape: str | None
) -> Iterator[tuple[str, NDArray[np.generic]]]:
    import numpy as np

    if not sources:
        if dtype is not None or shape is not None:
            raise UsageError("--dtype and --shape describe raw FILEs; the synthetic field takes --size")
        yield "synthetic smooth field", smooth_field(size)
    for path in sources:
        given = (None, None) if path.suffix == ".npy" else (dtype, shape)
        array = files.read_array(path, *given)
        if not array.size:
            raise UsageError(f"{path} has no elements: there is nothing to time")
        yield str(path), np.array(array)  # in memory: a first read from the disk is not what is timed


def smooth_field(megabytes: float) -> NDArray[np.float32]:
    """Return a cube of turbulence-like float32 values: a Gaussian field of spectrum k**(-11/3), zero mean, unit variance."""
    import numpy as np

    edge = max(round((megabytes * 1e6 / 4) ** (1 / 3)), 2)
    noise = np.random.default_rng(0).standard_normal((edge, edge, edge), dtype=np.float32)
    spectrum = np.fft.rfftn(noise).astype(np.complex64)
    full = (np.fft.fftfreq(edge) * edge).astype(np.float32) ** 2
    half = (np.fft.rfftfreq(edge) * edge).astype(np.float32) ** 2
    squared = full[:, None, None] + full[None, :, None] + half[None, None, :]
    squared[0, 0, 0] = 1.0
    spectrum *= squared ** np.float32(-11 / 12)
    spectrum[0, 0, 0] = 0.0
    field = np.fft.irfftn(spectrum, s=noise.shape, axes=(0, 1, 2)).astype(np.float32)
    return np.ascontiguousarray(field / field.std())


def _check(array: NDArray[np.generic], timings: Sequence[Timing]) -> dict[str, dict[str, Any]]:
    """Verify one archive of each pipeline, and that the others are the same bytes."""
    checks: dict[str, dict[str, Any]] = {}
    for timing in timings:
        first = next(t for t in timings if t.contender.name == timing.contender.name)
        if timing is first:
            bound = bq.verify(timing.archive, array).bound
            checks[timing.contender.name] = {
                "identical": True,
                "bound_kept": bound is None or bound.ok,
                "largest_error": bound.largest_error if bound else None,
                "eb": timing.eb,
                "psnr": bound.psnr if bound else None,
                "outliers": timing.outliers,
            }
        elif timing.archive != first.archive:
            checks[timing.contender.name]["identical"] = False
    return checks


def _report(
    name: str, array: NDArray[np.generic], timings: Sequence[Timing], checks: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    faster = speedups(timings)
    return {
        "input": name,
        "dtype": array.dtype.name,
        "shape": array.shape,
        "bytes": array.nbytes,
        "runs": [
            {
                "pipeline": t.contender.name,
                "target": t.contender.target,
                "fusion": t.contender.fusion,
                "groups": {"compress": t.plan.forward.groups, "decompress": t.plan.inverse.groups},
                "launches": {"compress": t.plan.forward.launches, "decompress": t.plan.inverse.launches},
                "ratio": t.ratio,
                "raw": t.raw,
                "outliers": t.outliers,
                "archive_bytes": len(t.archive),
                "compress_seconds": t.compress,
                "decompress_seconds": t.decompress,
                "compress_mb_per_s": array.nbytes / t.compress / 1e6,
                "decompress_mb_per_s": array.nbytes / t.decompress / 1e6,
                "speedup_over_staged": {"compress": faster[i][0], "decompress": faster[i][1]} if i in faster else None,
                "first_seconds": t.first,
            }
            for i, t in enumerate(timings)
        ],
        "checks": checks,
    }


def _print(report: dict[str, Any], eb: str | None, mode: str, repeat: int) -> None:
    shape = tables.shape_words(report["shape"])
    click.echo(
        f"{report['input']}: {report['dtype']}, {shape}, {tables.size_words(report['bytes'])}; "
        f"bound {tables.mode_words(mode)} {eb}; {f'medians of {repeat}' if repeat > 1 else 'one run each'}"
    )
    rows = []
    for run in report["runs"]:
        faster = run["speedup_over_staged"] or {}
        rows.append(
            (
                run["pipeline"],
                run["target"],
                "-" if run["target"] == REFERENCE else run["fusion"],
                f"{run['launches']['compress']} / {run['launches']['decompress']}",
                "raw" if run["raw"] else f"{run['ratio']:.2f}",
                tables.rate_words(report["bytes"], run["compress_seconds"]),
                f"{faster['compress']:.2f}" if faster else "",
                tables.rate_words(report["bytes"], run["decompress_seconds"]),
                f"{faster['decompress']:.2f}" if faster else "",
            )
        )
    tables.print_table(_COLUMNS, rows, right=_RIGHT)
    for name, check in report["checks"].items():
        share = f", largest error {check['largest_error'] / check['eb']:.4f} of the bound" if check["eb"] else ""
        same = "the same bytes from all" if check["identical"] else "DIFFERENT BYTES between contenders"
        kept = "bound kept" if check["bound_kept"] else "BOUND VIOLATED"
        click.echo(f"{name}: {kept}{share}, {tables.count_words(check['outliers'], 'outlier')}; {same}")
    first = sum(run["first_seconds"] for run in report["runs"])
    click.echo(f"planning and first compile: {first:.1f} s, in no time above")

"""Options that several commands take, and what they turn into."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from briquette import Pipeline

F = TypeVar("F", bound=Callable[..., Any])

in_path = click.Path(exists=True, dir_okay=False, path_type=Path)
out_path = click.Path(path_type=Path)

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, and nothing else, to standard output.")
force_option = click.option("--force", is_flag=True, help="Replace an output file that exists.")
target_option = click.option(
    "--target", metavar="NAME", help="Where to run: numpy, host, ... (default: the fastest that runs here)."
)
fusion_option = click.option(
    "--fusion",
    type=click.Choice(["off", "auto", "force"]),
    help="off: each stage alone; auto (default): fuse what pays; force: also install groups that do not pay, and fail (exit code "
    "2) where neighbours that both declare a fused form do not fuse. On numpy there is nothing to force.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Threads to use (default: the target's choice)."
)
dtype_option = click.option(
    "--dtype", metavar="DTYPE", help="Of raw files: float32, >f8, float16, bfloat16, int16, ... (of .npy files: bfloat16 only)."
)
region_option = click.option(
    "--region",
    metavar="A:B",
    help="Only these positions along the leading axis, as in Python: 10:20, :100, -5: (other axes whole).",
)
flat_option = click.option("--flat", metavar="A:B", help="Only these elements, counted in C order; one-dimensional.")
shape_option = click.option("--shape", metavar="N,N,...", help="Of raw files; without it they are one-dimensional.")


def bound_options(default: str | None = None, mode: str = "abs", point_wise: bool = True) -> Callable[[F], F]:
    """Add ``--eb`` and ``--mode``, with point-wise relative bounds or without."""
    third = ("; pwrel: point-wise relative, times the magnitude of each value", ["pwrel"]) if point_wise else ("", [])

    def add(command: F) -> F:
        shown = f" (default: {default})" if default else ""
        command = click.option(
            "--mode",
            type=click.Choice(["abs", "rel", "noa", *third[1]]),
            default=mode,
            show_default=True,
            help=f"abs: absolute; rel (alias noa): range-relative, times the range of the finite values{third[0]}.",
        )(command)
        return click.option("--eb", metavar="BOUND", default=default, help=f"Error bound, such as 1e-3{shown}.")(command)

    return add


def parse_bound(eb: str | None, mode: str) -> float | None:
    """Return the bound in float64; raise `UsageError` naming the text where it is no bound."""
    from briquette.record import Bound

    return None if eb is None else Bound(eb, mode).eb  # type: ignore[arg-type]  # it takes text too, and quotes it


def parse_slice(option: str, text: str | None) -> slice | None:
    """Return the slice written as ``10:20``; raise `UsageError` naming the option and the text."""
    from briquette.errors import UsageError

    if text is None:
        return None
    begin, colon, end = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return slice(int(begin) if begin.strip() else None, int(end) if end.strip() else None)
    except ValueError:
        raise UsageError(f"{option} {text!r} is no range of positions; write it as 10:20, :20 or 10:") from None


def load_pipeline(text: str) -> Pipeline:
    """Return the preset `text`, or the pipeline in the TOML file it names."""
    from briquette import Pipeline

    if text.endswith(".toml") or "/" in text or "\\" in text:
        return Pipeline.from_toml(Path(text))
    return Pipeline.from_preset(text)


def all_presets() -> tuple[str, ...]:
    """Return the names of the installed presets; raise `LookupFailed` where there is none."""
    from briquette import discovery
    from briquette.errors import LookupFailed

    names = discovery.registry().presets()
    if not names:
        raise LookupFailed("no preset is installed; install a pack that brings some, such as: pip install briquette-bitpack")
    return names


def require_bound(pipeline: Pipeline, eb: float | None, dtype: str) -> None:
    """Refuse a pipeline that needs a bound for data of `dtype` where none is given."""
    from briquette.errors import UsageError

    if eb is None and pipeline.bound is None:
        needing = [node for node, stage in pipeline.variant(dtype, None).graph.nodes.items() if stage.needs_bound]
        if needing:
            raise UsageError(f"the pipeline needs an error bound (for {', '.join(needing)}): give --eb and --mode")

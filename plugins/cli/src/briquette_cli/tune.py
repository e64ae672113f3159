"""``briquette tune``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from . import files, options, tables


@click.command()
@click.argument("source", metavar="INPUT", type=options.in_path)
@options.bound_options(default="1e-3", mode="rel")
@click.option("--pipeline", default="fast", show_default=True, metavar="NAME|FILE.toml", help="A preset, or a pipeline in TOML.")
@options.target_option
@options.fusion_option
@options.threads_option
@options.dtype_option
@options.shape_option
@options.json_option
def tune(
    source: Path,
    eb: str | None,
    mode: str,
    pipeline: str,
    target: str | None,
    fusion: str | None,
    threads: int | None,
    dtype: str | None,
    shape: str | None,
    as_json: bool,
) -> None:
    """Measure on INPUT which geometry of the pipeline's kernels runs fastest here, and remember it.

    Archives do not change. What is found holds for this kind of processor or GPU, this compiler and these kernels, and is kept in
    the cache of compiled code; BRIQUETTE_TUNE=0 ignores it. Give an array as large as those to come.
    """
    bound = options.parse_bound(eb, mode)
    array = files.read_array(source, dtype, shape)
    pipe = options.load_pipeline(pipeline)
    with tables.progress() as show:
        show("compiling and measuring")
        report = pipe.tune(array, bound, mode, target=target, fusion=fusion, threads=threads)
    if as_json:
        found = dataclasses.asdict(report)
        tables.print_json({**found, "choices": [{**dataclasses.asdict(c), "gain": c.gain} for c in report.choices]})
    else:
        click.echo(report.explain())

"""``briquette compress`` and ``briquette decompress``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

import briquette as bq
from briquette.errors import BoundViolation

from . import files, options, tables


@click.command()
@click.argument("source", metavar="INPUT", type=options.in_path)
@click.option("-o", "--output", metavar="OUT.bq", type=options.out_path, help="Archive to write (default: INPUT.bq).")
@options.bound_options()
@click.option(
    "--target-ratio", type=float, metavar="RATIO", help="Instead of --eb: find a bound that gives this ratio, within 3 %."
)
@click.option("--target-psnr", type=float, metavar="DB", help="Instead of --eb: find a bound for this PSNR, within 0.5 dB.")
@click.option("--pipeline", default="fast", show_default=True, metavar="NAME|FILE.toml", help="A preset, or a pipeline in TOML.")
@click.option(
    "--fill-value",
    "fill_values",
    multiple=True,
    type=float,
    metavar="VALUE",
    help="A value that stands for missing ones, beside NaN: comes back exactly, does not count in the range. Up to four; needs a "
    "pipeline that takes them, such as masked.",
)
@options.target_option
@options.fusion_option
@options.threads_option
@options.dtype_option
@options.shape_option
@click.option(
    "--check", is_flag=True, help="Decompress again and check the bound before the archive is kept; reports the largest error."
)
@options.force_option
@options.json_option
def compress(
    source: Path,
    output: Path | None,
    eb: str | None,
    mode: str,
    target_ratio: float | None,
    target_psnr: float | None,
    pipeline: str,
    fill_values: tuple[float, ...],
    target: str | None,
    fusion: str | None,
    threads: int | None,
    dtype: str | None,
    shape: str | None,
    check: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Compress an array file within an error bound.

    INPUT is a .npy file, or raw values in C order described by --dtype and --shape. Every finite value comes back within the
    bound; NaN and infinities come back bit for bit.
    """
    bound = options.parse_bound(eb, mode)
    output = output or source.with_name(source.name + files.ARCHIVE_SUFFIX)
    files.check_output(output, source, force=force)
    array = files.read_array(source, dtype, shape)
    pipe = options.load_pipeline(pipeline)
    goal = {"target_ratio": target_ratio, "target_psnr": target_psnr}
    if goal == dict.fromkeys(goal):
        options.require_bound(pipe, bound, array.dtype.newbyteorder("=").name)
    with tables.progress() as show:
        show(f"compressing {tables.size_words(array.nbytes)}")
        how: dict[str, Any] = {"target": target, "fusion": fusion, "threads": threads, "fill_value": fill_values, **goal}
        result = bq.compress_run(array, bound, mode, pipeline=pipe, **how)
        report = None
        if check:
            show("checking the bound")
            report = bq.verify(result.archive, array)
        if report is None or report.ok:
            show("writing")
            files.write_bytes(output, result.archive)
    used = result.search.bound if result.search is not None else pipe.bound if bound is None else None
    mode = mode if used is None else used.mode
    facts = _compress_facts(result, output, mode)
    if report is not None and report.bound is not None:
        facts["largest_error"], facts["psnr"] = report.bound.largest_error, report.bound.psnr
    if report is not None and report.bound is not None and not report.ok:
        raise BoundViolation(
            f"the reconstruction of {source} misses the bound {report.eb:.6g}: {tables.violation_words(report.bound)}; "
            f"{tables.error_words(mode)} {report.bound.largest_error:.6g}; nothing was written"
        )
    if as_json:
        tables.print_json(facts)
    else:
        _tell(source, facts)


def _compress_facts(result: Any, output: Path, mode: str) -> dict[str, Any]:
    found = result.search
    return {
        "output": output,
        "original_bytes": result.original_bytes,
        "archive_bytes": result.archive_bytes,
        "ratio": result.ratio,
        "raw": result.raw,
        "eb": result.eb,
        "mode": mode,
        "outliers": result.outliers,
        "target": result.plan.target,
        "fused": result.plan.forward.groups,
        "launches": result.plan.forward.launches,
        "seconds": result.seconds,
        **({} if found is None else {"search": {**dataclasses.asdict(found), "bound": found.bound.eb}}),
    }


def _tell(source: Path, facts: dict[str, Any]) -> None:
    sizes = f"{tables.size_words(facts['original_bytes'])} -> {tables.size_words(facts['archive_bytes'])}"
    click.echo(f"{source} -> {facts['output']}: {sizes}, ratio {facts['ratio']:.2f}")
    if facts["raw"]:
        click.echo("held raw: the coded form would have been larger")
    elif facts["eb"] is not None:
        click.echo(f"bound {facts['eb']:.6g}, outliers {facts['outliers']:,}")
    if "search" in facts:
        click.echo(_search_words(facts["search"]))
    if "largest_error" in facts:
        worst = f"{tables.error_words(facts['mode'])} {facts['largest_error']:.6g}"
        click.echo(f"{worst}, PSNR {tables.psnr_words(facts['psnr'])}")
    groups = "; ".join(" + ".join(group) for group in facts["fused"])
    click.echo(f"target {facts['target']}, {f'fused {groups}' if groups else 'nothing fused'}, {facts['seconds']:.3f} s")


def _search_words(search: dict[str, Any]) -> str:
    """Say how the bound was found."""
    unit = " dB" if search["kind"] == "psnr" else ""
    name = "PSNR" if search["kind"] == "psnr" else "ratio"
    tried = f"{search['sample_runs']} bounds on {search['sample_elements']:,} elements and {search['whole_runs']} on all"
    return f"{name} {search['achieved']:.4g}{unit} for {search['wanted']:g}{unit} wanted; tried {tried}"


@click.command()
@click.argument("archive", type=options.in_path)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=options.out_path,
    help="File to write: .npy, else raw values (default: ARCHIVE less .bq, or with .npy appended).",
)
@options.region_option
@options.flat_option
@options.target_option
@options.fusion_option
@options.threads_option
@options.force_option
@options.json_option
def decompress(
    archive: Path,
    output: Path | None,
    region: str | None,
    flat: str | None,
    target: str | None,
    fusion: str | None,
    threads: int | None,
    force: bool,
    as_json: bool,
) -> None:
    """Restore the array of an archive, or a part of it, for which no more than the part is decoded.

    An output named .npy carries dtype and shape; any other name gets the bare values, in the byte order they had.
    """
    stem = archive.with_suffix("") if archive.suffix == files.ARCHIVE_SUFFIX else archive.with_name(archive.name + ".npy")
    output = output or stem
    files.check_output(output, archive, force=force)
    rows, elements = options.parse_slice("--region", region), options.parse_slice("--flat", flat)
    with tables.progress() as show:
        show("decompressing")
        blob = files.read_archive(archive)
        result = bq.decompress_run(blob, region=rows, flat=elements, target=target, fusion=fusion, threads=threads)
        show("writing")
        files.write_array(output, result.array)
    array = result.array
    facts: dict[str, Any] = {
        "output": output,
        "dtype": array.dtype.str,
        "shape": array.shape,
        "bytes": array.nbytes,
        "raw": result.plan is None,
        "target": result.plan.target if result.plan else None,
        "fused": result.plan.inverse.groups if result.plan else (),
        "seconds": result.seconds,
    }
    if as_json:
        tables.print_json(facts)
        return
    click.echo(f"{archive} -> {output}: {array.dtype.name}, {tables.shape_words(array.shape)}, {tables.size_words(array.nbytes)}")

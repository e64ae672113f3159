"""``briquette info``, ``verify`` and ``plan``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import briquette as bq
from briquette.alternatives import MODES

from . import files, options, tables
from .exits import ExitCode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from briquette.plan import DirectionPlan, Plan


@click.command()
@click.argument("archive", type=options.in_path)
@options.json_option
def info(archive: Path, as_json: bool) -> None:
    """Show what an archive holds: its array, bound, stages, segments and sizes. Only the header is read and checked."""
    facts = bq.info(files.read_archive(archive))
    if as_json:
        tables.print_json(facts)
        return
    tables.print_facts([("archive", archive), *_rows(facts)])


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, object]]:
    order = {"<": "little-endian", ">": "big-endian"}[facts["byteorder"]]
    rows: list[tuple[str, object]] = [
        ("array", f"{facts['dtype']}, {tables.shape_words(facts['shape'])} ({facts['elements']:,} elements), {order}"),
        ("sizes", f"{facts['original_bytes']:,} -> {facts['archive_bytes']:,} bytes, ratio {facts['ratio']:.2f}"),
        ("bound", _bound_words(facts)),
    ]
    if facts["raw"]:
        rows.append(("held raw", "the coded form would have been larger"))
    for i, stage in enumerate(facts["stages"]):
        pack, _, name = stage["stage"].partition(":")
        node = f" as {stage['node']}" if stage["node"] != name else ""
        given = ", ".join(f"{k}={v}" for k, v in stage["parameters"].items()) or "no parameters"
        whose = f"{pack} {stage['pack_version']}, format {stage['format_version']}"
        rows.append(("stages" if i == 0 else "", f"{name}{node}: {given} ({whose})"))
    for i, (a, out, b, into) in enumerate(facts["edges"] or ()):
        rows.append(("edges" if i == 0 else "", f"{f'{a}.{out}' if a else 'the input'} -> {b}.{into}"))
    for i, (node, state) in enumerate(facts["state"].items()):
        rows.append(("resolved" if i == 0 else "", f"{node}: " + ", ".join(f"{k} {v}" for k, v in state.items())))
    for i, seg in enumerate(facts["segments"]):
        words = (
            f"{seg['kind']}, {seg['elements']:,} elements: table {seg['table_bytes']:,}, payload {seg['payload_bytes']:,} bytes"
        )
        rows.append(("segments" if i == 0 else "", words))
    rows.append(
        ("layout", f"format {facts['format']}, header {facts['header_bytes']} bytes, chunks of {facts['chunk']:,} elements")
    )
    rows.append(("written by", f"briquette-core {facts['core_version']}"))
    return rows


def _bound_words(facts: Mapping[str, Any]) -> str:
    bound = facts["bound"]
    if bound is None:
        return "none (lossless)"
    resolved = [state["eb"] for state in facts["state"].values() if "eb" in state]
    absolute = f", {resolved[0]} in absolute terms" if bound["mode"] == "rel" and resolved else ""
    return f"{tables.mode_words(bound['mode'])} {bound['eb']}{absolute}"


@click.command()
@click.argument("archive", type=options.in_path)
@click.argument("original", required=False, type=options.in_path)
@options.json_option
@click.pass_context
def verify(ctx: click.Context, archive: Path, original: Path | None, as_json: bool) -> None:
    """Check an archive's integrity, and the bound against ORIGINAL.

    Every checksum is verified. The comparison with ORIGINAL is exact, without tolerance; a raw ORIGINAL has the dtype and
    shape of the archive, and a range-relative bound is taken times the range of ORIGINAL; under a point-wise relative one every
    error is relative to its value. Ends with 3 where the archive is
    damaged and with 4 where the bound is violated.
    """
    with tables.progress() as show:
        show("verifying")
        blob = files.read_archive(archive)
        array = None if original is None else _original(original, blob)
        report = bq.verify(blob, array)
    bound = report.bound
    facts: dict[str, Any] = {"archive": archive, "ok": report.ok, "integrity": report.integrity, "eb": report.eb}
    if bound is not None:
        facts["bound"] = {
            "ok": bound.ok,
            "violations": bound.violations,
            "specials_changed": bound.specials_changed,
            "largest_error": bound.largest_error,
            "first_violation": bound.first_violation if bound.first_violation >= 0 else None,
            "psnr": bound.psnr,
        }
    if as_json:
        tables.print_json(facts)
    else:
        click.echo(f"{archive}: {'undamaged' if report.integrity else 'DAMAGED'}")
        if bound is None:
            click.echo("bound: not checked (name the original file to check it)")
        else:
            of = f" of the bound {report.eb:.6g}{_whose_range(blob, original, report.eb)}" if report.eb is not None else ""
            share = f" ({bound.largest_error / report.eb:.4f}{of})" if report.eb else of
            held = bq.info(blob)
            mode = None if held["raw"] or held["bound"] is None else held["bound"]["mode"]
            worst = f"{tables.error_words(mode)} {bound.largest_error:.6g}"
            click.echo(f"bound: {'kept' if bound.ok else 'VIOLATED'}; {worst}{share}")
            click.echo(f"PSNR: {tables.psnr_words(bound.psnr)}")
            if not bound.ok:
                click.echo(tables.violation_words(bound))
    if not report.ok:
        ctx.exit(ExitCode.BOUND_VIOLATED if report.integrity else ExitCode.BAD_DATA)


def _whose_range(blob: memoryview, original: Path | None, eb: float) -> str:
    """Return, for a range-relative bound, whose range it comes from, and the one of the archive where that differs."""
    facts = bq.info(blob)
    if facts["raw"] or facts["bound"] is None or facts["bound"]["mode"] != "rel":
        return ""
    text = f" = {facts['bound']['eb']} x the range of {original}"
    own = next((state["eb"] for state in facts["state"].values() if "eb" in state), eb)
    return text if own == eb else f"{text}; the archive was made for {own:.6g}, from another range"


def _original(path: Path, blob: memoryview) -> NDArray[np.generic]:
    facts = bq.info(blob)
    if path.suffix == ".npy":
        return files.read_array(path, facts["dtype"] if facts["dtype"] == "bfloat16" else None)
    if facts["dtype"] == "bfloat16":
        return files.read_array(path, facts["dtype"], tuple(facts["shape"]))
    import numpy as np

    dtype = np.dtype(facts["dtype"]).newbyteorder(facts["byteorder"]).str
    return files.read_array(path, dtype, tuple(facts["shape"]))


@click.command()
@click.argument("pipeline", metavar="PIPELINE")
@click.option("--dtype", default="float32", show_default=True, help="Of the input: float32, bfloat16, int16, ...")
@click.option("--shape", metavar="N,N,...", help="Of the input; adds the bytes of buffers.")
@click.option("--mode", type=click.Choice(MODES), help="Of the bound to come, where the pipeline names stages for one mode.")
@options.target_option
@options.fusion_option
@options.json_option
def plan(
    pipeline: str, dtype: str, shape: str | None, mode: str | None, target: str | None, fusion: str | None, as_json: bool
) -> None:
    """Show how PIPELINE, a preset or a TOML file, runs: fused groups, reasons where stages do not fuse, launches, buffers."""
    count = None if shape is None else math.prod(files.parse_shape(shape))
    made = options.load_pipeline(pipeline).plan(files.parse_dtype(dtype), target, fusion, mode)
    if as_json:
        tables.print_json(_plan_facts(made, count))
    else:
        click.echo(made.explain(count))


def _plan_facts(made: Plan, count: int | None) -> dict[str, Any]:
    def direction(one: DirectionPlan) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "launches": one.launches,
            "steps": [{"kind": s.kind, "harness": s.harness or None, "nodes": s.nodes} for s in one.steps],
            "groups": one.groups,
            "not_fused": [{"from": r.src, "to": r.dst, "reason": r.reason} for r in one.reasons],
            "never_allocated": [f"{node}.{port}" for node, port in one.elided],
            "transfers": one.transfers,
        }
        if count is not None:
            facts["peak_stream_bytes"] = made.buffer_bytes(one.direction, count)
        return facts

    return {
        "dtype": made.dtype,
        "target": made.target,
        "fusion": made.fusion,
        "chunk": made.chunk,
        "compress": direction(made.forward),
        "decompress": direction(made.inverse),
    }

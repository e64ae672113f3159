"""``briquette cache``: compiled code on disk."""

from __future__ import annotations

import time
from typing import Any

import click

from . import options, tables


@click.group()
def cache() -> None:
    """Show, fill or empty the cache of compiled code (BRIQUETTE_CACHE_DIR)."""


@cache.command()
@options.json_option
def info(as_json: bool) -> None:
    """Show where the cache is and how full."""
    from briquette.cache import Cache

    found = Cache.from_environment().info()
    facts = {
        "directory": found.directory,
        "shared": found.shared,
        "entries": found.entries,
        "bytes": found.bytes,
        "max_bytes": found.max_bytes,
        "problem": found.problem,
    }
    if as_json:
        tables.print_json(facts)
        return
    rows: list[tuple[str, object]] = [("directory", found.directory or "none")]
    if found.shared is not None:
        rows.append(("shared layer", found.shared))
    rows.append(
        ("entries", f"{found.entries:,}, {tables.size_words(found.bytes)} of at most {tables.size_words(found.max_bytes)}")
    )
    if found.problem:
        rows.append(("problem", found.problem))
    tables.print_facts(rows)


@cache.command()
@click.argument("pipelines", metavar="[PIPELINE]...", nargs=-1)
@click.option("--dtype", "dtypes", multiple=True, help="Of the arrays to come (default: float32 and float64).")
@options.target_option
@options.fusion_option
@options.json_option
def warm(pipelines: tuple[str, ...], dtypes: tuple[str, ...], target: str | None, fusion: str | None, as_json: bool) -> None:
    """Compile what PIPELINEs need (default: every preset), so that first runs need no compiler."""
    from briquette.selection import REFERENCE, choose_target

    from .files import parse_dtype

    names = pipelines or options.all_presets()
    chosen = choose_target(target)
    work = [(name, parse_dtype(dtype)) for name in names for dtype in dtypes or ("float32", "float64")]
    done: list[dict[str, Any]] = []
    with tables.progress() as show:
        for i, (name, dtype) in enumerate(work):
            show(f"compiling {name} for {dtype}", i, len(work))
            start = time.perf_counter()
            options.load_pipeline(name).compile(dtype, target, fusion)
            done.append({"pipeline": name, "dtype": dtype.name, "seconds": time.perf_counter() - start})
    where = chosen.name if chosen is not None else REFERENCE
    if as_json:
        tables.print_json({"target": where, "compiled": done})
    elif chosen is None:
        click.echo(f"target {where}: there is nothing to compile")
    else:
        tables.print_table(
            ["pipeline", "dtype", "seconds"],
            [(d["pipeline"], d["dtype"], f"{d['seconds']:.2f}") for d in done],
            right=["seconds"],
        )


@cache.command()
@options.json_option
def clean(as_json: bool) -> None:
    """Remove every entry. Running programs are not disturbed."""
    from briquette.cache import Cache

    store = Cache.from_environment()
    freed = store.clean()
    if as_json:
        tables.print_json({"directory": store.directory, "freed_bytes": freed})
    else:
        click.echo(f"removed {tables.size_words(freed)} from {store.directory or 'no directory'}")

"""Packs for the tests of discovery: installed ones, and entry points of packs that are not. The fixtures are in conftest."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

from briquette.stage import Stage

STAGE = """
from briquette.stage import Stage
class {cls}(Stage):
    name = "{name}"
"""
MakePack = Callable[..., Path]


def stage_pack(make: MakePack, dist: str, name: str = "squash", **options: str) -> Path:
    module = dist.replace("-", "_")
    return make(dist, {"briquette.stages": {name: f"{module}:Squash"}}, STAGE.format(cls="Squash", name=name), **options)


def point(name: str, value: str, group: str = "stages", dist: str = "acme-one", version: str = "1.0") -> EntryPoint:
    """Return an entry point that says which distribution it is of, without one being installed."""
    made = EntryPoint(name, value, f"briquette.{group}")
    vars(made)["dist"] = SimpleNamespace(name=dist, version=version)
    return made


def make_stage(name: str, **members: object) -> type[Stage]:
    return type("Made", (Stage,), {"name": name, **members})


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

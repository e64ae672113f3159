"""What a call asks for: the pipeline that runs, the bound, the input and the target."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import discovery
from ._names import shown
from .alternatives import missing_of
from .arrays import Source
from .errors import UsageError
from .pipeline import Pipeline
from .ports import CARRIED_AS
from .record import Bound
from .selection import placed


def as_pipeline(pipeline: str | os.PathLike[str] | Pipeline) -> Pipeline:
    """Return a pipeline from itself, a preset's name, or the path of a TOML file."""
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, os.PathLike):
        return Pipeline.from_toml(pipeline)
    if not isinstance(pipeline, str):
        raise UsageError(
            f"pipeline={shown(pipeline)} is a {type(pipeline).__name__}; give a preset's name, a TOML file's path or a Pipeline"
        )
    return Pipeline.from_toml(Path(pipeline)) if pipeline.endswith(".toml") else _preset(discovery.registry(), pipeline)


def asked(
    pipeline: str | os.PathLike[str] | Pipeline,
    eb: float | None,
    mode: str,
    x: Any,
    target: str | None,
    stream: Any = None,
    fill_value: float | Sequence[float] | None = None,
) -> tuple[Pipeline, Bound | None, Source, str | None]:
    """Return the pipeline for the input's type and the bound (`Pipeline.variant`), the bound, the input, and the target."""
    pipe = as_pipeline(pipeline)
    bound = _bound(eb, mode) if eb is not None else pipe.bound
    source, target = placed(x, target, stream)
    if source.dtype in CARRIED_AS:
        bound = None  # truth values come back as they are
    return pipe.variant(source.dtype, bound, missing_of(fill_value)), bound, source, target


def _bound(eb: float, mode: str) -> Bound:
    return _known_bound(eb, mode) if type(eb) is float and type(mode) is str else Bound(eb, mode)


@lru_cache(maxsize=64)
def _known_bound(eb: float, mode: str) -> Bound:
    return Bound(eb, mode)


@lru_cache(maxsize=64)
def _preset(_registry: discovery.Registry, name: str) -> Pipeline:
    return Pipeline.from_preset(name)

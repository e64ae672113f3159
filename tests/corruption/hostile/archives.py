"""Sound archives to damage: small, and together holding every form that a payload of the presets can take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import briquette
from briquette.archive import Archive
from briquette.pipeline import Pipeline

#: those that end in a coder of segments
SEGMENTED: Final = ("fast", "planes", "zigzag", "adaptive")
#: those whose codes are laid out in another order than the array's
LAID: Final = ("tiled", "tiled-outlier", "tiled-fixed")
#: presets of the chunk-cooperative harness: with a side stream, and without
ASIDE: Final = ("leading-bits", "leading-repeats", "packed-chunks", "packed-widths")
WHOLE: Final = ("chunked", "repeated-planes", "lossless")
#: those with the values kept aside in a stream as core writes it
SIDED: Final = (*SEGMENTED, *LAID, *ASIDE)
EVERY: Final = (*SEGMENTED, *LAID, "archive", "masked", *ASIDE, *WHOLE)
#: what the presets leave out: other spans, narrow codes for both dtypes, wide ones for float32
OTHERS: Final = {
    "narrow": ("linear-quantizer:code_type=int16", "lorenzo-1d:region=64", "zigzag", "plain-rate:segment=64"),
    "wide": ("linear-quantizer:code_type=int64", "lorenzo-1d:region=512", "plain-rate:segment=1024"),
}
DTYPES: Final = ("float32", "float64")
#: a whole archive chunk and a partial one, whose last span is partial too
COUNT: Final = 8192 + 37
EB: Final = 0.1

#: what is kept aside -> the position form and the value form it is written in
FORMS: Final = {
    "scattered": (0, 0),
    "scattered-equal": (0, 1),
    "dense": (1, 0),
    "dense-equal": (1, 1),
    "block": (2, 0),
    "block-equal": (2, 1),
}


@dataclass(frozen=True)
class Sound:
    """A sound archive and what it decodes to."""

    name: str
    data: bytes
    array: NDArray[Any]


@cache
def pipeline(name: str) -> Pipeline:
    """Return a preset, or one of `OTHERS`."""
    if name not in OTHERS:
        return Pipeline.from_preset(name)
    text = ""
    for stage, _, parameter in (entry.partition(":") for entry in OTHERS[name]):
        key, _, value = parameter.partition("=")
        text += f'[[stage]]\nuse = "{stage}"\n'
        text += f"params = {{ {key} = {value if value.isdigit() else repr(value)} }}\n" if key else ""
    return Pipeline.from_toml(text)


def bound(name: str) -> float | None:
    """Return the bound that the archives of a pipeline have: none where no stage takes one."""
    return EB if any(stage.needs_bound for stage in pipeline(name).graph.nodes.values()) else None


def field(dtype: str, kept: str, seed: int = 0) -> NDArray[Any]:
    """Return a smooth stream in which values are kept aside as `kept` says: one of `FORMS`, or ``none``."""
    rng = np.random.default_rng(seed)
    x = (0.15 * np.cumsum(rng.integers(-1, 2, COUNT))).astype(dtype)
    where = {
        "scattered": rng.choice(COUNT, 9, False),
        "dense": np.flatnonzero(rng.random(COUNT) < 0.08),
        "block": np.arange(700, 820),
    }
    at = where.get(kept.split("-")[0], np.empty(0, np.int64))
    if kept.endswith("equal"):
        x[at] = np.nan
    else:  # a payload of its own each
        bits = f"u{x.itemsize}"
        x[at] = (np.array(np.inf, dtype).view(bits) + np.arange(1, at.size + 1).astype(bits)).view(dtype)
    return x


def forms(data: bytes) -> set[tuple[int, int]]:
    """Return the position and value forms of the chunks' outliers in a coded archive."""
    archive = Archive.open(data)
    side = archive.chunked(len(archive.segments) - 1)
    heads = [int(side.words[int(at)]) for at, size in zip(side.offsets, side.sizes, strict=False) if size]
    return {(head >> 28 & 3, head >> 30) for head in heads}


@cache
def sound(preset: str) -> tuple[Sound, ...]:
    """Return the archives of a preset (or of one of `OTHERS`): both dtypes, with and without values kept aside, and held raw."""
    made = []
    for dtype in DTYPES:
        for kept in ("none", *FORMS):
            data = bytes(briquette.compress(field(dtype, kept), bound(preset), pipeline=pipeline(preset), target="numpy"))
            made.append(_sound(f"{preset}-{dtype}-{kept}", data))
        noise = (1e9 * np.random.default_rng(1).normal(size=(30, 20))).astype(dtype)
        if bound(preset) is None:  # of values alike in magnitude some bits can be spared
            noise = np.frombuffer(np.random.default_rng(1).bytes(noise.nbytes), dtype).reshape(noise.shape)
        data = bytes(briquette.compress(noise, bound(preset) and 1e-12, pipeline=pipeline(preset), target="numpy"))
        made.append(_sound(f"{preset}-{dtype}-raw", data))
    return tuple(made)


def _sound(name: str, data: bytes) -> Sound:
    return Sound(name, data, briquette.decompress(data, target="numpy"))

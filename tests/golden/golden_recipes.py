"""What each golden archive was made of. Recipes are added, never changed: an input is the same for ever.

Inputs are parts of the bundled fields, or made with integers and exact fractions, so that no library function's last bit matters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import briquette as bq

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
#: archives of format version 1.0; another version gets a folder and recipes of its own
ARCHIVES: Final = HERE / "v1.0"
MANIFEST: Final = ARCHIVES / "manifest.json"

Array = NDArray[Any]


@dataclass(frozen=True)
class Recipe:
    """An input, a pipeline (a preset's name, or TOML) and a bound."""

    field: Callable[[], Array]
    pipeline: str
    eb: float | None
    mode: str = "abs"
    raw: bool = False

    def compress(self, target: str, fusion: str = "auto") -> bytes:
        """Return the archive, made by today's writer."""
        pipe = bq.Pipeline.from_toml(self.pipeline) if "\n" in self.pipeline else bq.Pipeline.from_preset(self.pipeline)
        made = bq.compress_run(self.field(), self.eb, self.mode, pipeline=pipe, target=target, fusion=fusion)
        assert made.raw is self.raw, f"the archive is {'' if made.raw else 'not '}raw"
        return bytes(made.archive)


def manifest() -> dict[str, dict[str, Any]]:
    """Return what was recorded when the archives were written."""
    found: dict[str, dict[str, Any]] = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return found


def chain(*stages: tuple[str, Mapping[str, Any]]) -> str:
    """Return the TOML of a linear pipeline."""
    lines = []
    for use, parameters in stages:
        lines += ["[[stage]]", f"use = {json.dumps(use)}", "[stage.params]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in parameters.items()]
    return "\n".join(lines) + "\n"


def sea() -> Array:
    """Sea-surface temperature, float32, 2 chunks; land is NaN."""
    field: Array = np.load(ROOT / "plugins/cli/src/briquette_cli/data/ocean_sst_nemo_f32.npy")[100:140]
    return field


def sun() -> Array:
    """Intensity of the solar disk, float64, 2 chunks; the sky is NaN."""
    field: Array = np.load(ROOT / "tests/data/solar_hmi_continuum_f64.npy")
    return field


def water() -> Array:
    """Positions of atoms, float32, less than a chunk; neighbours hardly correlated."""
    field: Array = np.load(ROOT / "tests/data/md_water_coords_f32.npy")[:4]
    return field


def outlier_forms(dtype: str) -> Array:
    """Seven chunks: each position form with each value form, in the order of `FORMS`, and a short chunk without outliers."""
    ramp = np.arange(8192 * 6 + 100) % 97 / 16.0
    x = ramp.astype(dtype)
    distinct = (2.0**100 * (1 + np.arange(900) / 1024)).astype(dtype)
    spots, many = np.arange(9) * 801 + 17, np.arange(900) * 9 + 5
    x[spots] = distinct[:9]
    x[8192 + spots] = np.nan
    x[2 * 8192 + many] = distinct
    x[3 * 8192 + many] = -np.inf
    x[4 * 8192 + 300 : 4 * 8192 + 800] = distinct[:500]
    x[5 * 8192 + 300 : 5 * 8192 + 800] = np.nan
    return x


#: (position form, value form) of the first six chunks of `outlier_forms`: list, bitmap, runs; each, runs
FORMS: Final = ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1))


def specials(dtype: str) -> Array:
    """Signed zeros, denormals, infinities and NaN with payloads among small values."""
    x = (np.arange(1500) % 41 / 8.0 - 2.5).astype(dtype)
    bits = x.view(f"u{x.dtype.itemsize}")
    payloads = (
        (0x7F800001, 0x7FC12345, 0xFFC00000) if dtype == "float32" else (0x7FF0 << 48 | 1, 0x7FF8 << 48 | 0x12345, 0xFFF8 << 48)
    )
    bits[[3, 700, 1499]] = payloads
    bits[[4, 5, 6]] = 1, 0x7FFF, 0x8000_0000 << (8 * x.dtype.itemsize - 32)
    x[[0, 701]] = np.inf, -np.inf
    return x


def big_endian() -> Array:
    return sun().astype(">f8")


def gravity() -> Array:
    """Gravity anomalies, float64, 2-D: neither axis is a multiple of a tile's edge; 3 chunks of the array, 4 of tiles."""
    field: Array = np.load(ROOT / "tests/data/geophysics_gravity_asia_f64.npy")[:61, :333]
    return field


def aquifer() -> Array:
    """Concentrations, float32, 4-D: a batch of 3-D fields."""
    field: Array = np.load(ROOT / "tests/data/groundwater_conc_mnw_f32.npy")[:3, :, :41, :30]
    return field


def holes() -> Array:
    """Sea-surface temperature as 3-D, with NaN, infinities and values that no code holds among it."""
    field = np.nan_to_num(sea().reshape(8, 30, 60), nan=1e30)
    field[::3, 7, ::5] = np.nan
    field[2, 3:9, 11:50] = np.inf
    return field


QUANTIZER, INT16 = ("linear-quantizer", {}), ("linear-quantizer", {"code_type": "int16"})
#: one stream of codes into two coders: edges, three sinks
FAN_OUT: Final = """
[[stage]]
use = "linear-quantizer"
node = "quantizer"
[[stage]]
use = "plain-rate"
node = "rate"
[[stage]]
use = "lorenzo-1d"
node = "differences"
[[stage]]
use = "adaptive-bitplane"
node = "planes"
[[edge]]
from = "in"
to = "quantizer.in"
[[edge]]
from = "quantizer.codes"
to = "rate.in"
[[edge]]
from = "quantizer.codes"
to = "differences.in"
[[edge]]
from = "differences.out"
to = "planes.in"
"""

#: the modes of tiles as a segment of their own
APART: Final = """
[[stage]]
use = "linear-quantizer"
[[stage]]
use = "adaptive-lorenzo"
[[stage]]
use = "plain-rate"
[[edge]]
from = "linear-quantizer.codes"
to = "adaptive-lorenzo.in"
[[edge]]
from = "adaptive-lorenzo.out"
to = "plain-rate.in"
"""

RECIPES: Final[Mapping[str, Recipe]] = {
    "fast-float32": Recipe(sea, "fast", 1e-3, "rel"),
    "fast-float64": Recipe(sun, "fast", 1e-3, "rel"),
    "planes-float32": Recipe(sea, "planes", 1e-3, "rel"),
    "planes-float64": Recipe(sun, "planes", 1e-3, "rel"),
    "zigzag-float32": Recipe(sea, "zigzag", 1e-3, "rel"),
    "zigzag-float64": Recipe(sun, "zigzag", 1e-3, "rel"),
    "fast-float32-abs": Recipe(water, "fast", 1e-2),
    "fast-float64-abs": Recipe(sun, "fast", 12.5),
    "fast-float64-tight": Recipe(lambda: sun()[40:60], "fast", 1e-9, "rel"),
    "fast-float64-big-endian": Recipe(big_endian, "fast", 1e-2, "rel"),
    "int16-fast-float32": Recipe(sea, chain(INT16, ("lorenzo-1d", {}), ("plain-rate", {})), 2e-4),
    "int16-planes-float64": Recipe(sun, chain(INT16, ("lorenzo-1d", {"region": 32}), ("adaptive-bitplane", {})), 0.9),
    "int16-zigzag-float32": Recipe(
        water, chain(INT16, ("lorenzo-1d", {"region": 100}), ("zigzag", {}), ("plain-rate", {"segment": 64})), 1e-2
    ),
    "int32-float64": Recipe(
        sun,
        chain(
            ("linear-quantizer", {"code_type": "int32"}),
            ("lorenzo-1d", {"region": 4096}),
            ("adaptive-bitplane", {"segment": 128}),
        ),
        1e-4,
        "rel",
    ),
    "int64-float32": Recipe(
        water, chain(("linear-quantizer", {"code_type": "int64"}), ("lorenzo-1d", {}), ("plain-rate", {"segment": 1024})), 1e-3
    ),
    "codes-only-float32": Recipe(sea, chain(QUANTIZER, ("adaptive-bitplane", {"segment": 64})), 0.05),
    "fan-out-float32": Recipe(sea, FAN_OUT, 0.05),
    "outlier-forms-float32": Recipe(lambda: outlier_forms("float32"), "fast", 0.5),
    "outlier-forms-float64": Recipe(lambda: outlier_forms("float64"), "planes", 0.5),
    "specials-float32": Recipe(lambda: specials("float32"), "fast", 1e-2),
    "specials-float64": Recipe(lambda: specials("float64"), "zigzag", 1e-2),
    "constant-float32": Recipe(lambda: np.full((20, 500), 3.5, np.float32), "fast", 1e-3, "rel"),
    "lossless-int16": Recipe(
        lambda: (np.arange(9000) % 251 - 125).astype(np.int16), chain(("lorenzo-1d", {}), ("plain-rate", {})), None
    ),
    "archive-float32": Recipe(sea, "archive", 1e-3, "rel"),
    "archive-float64": Recipe(sun, "archive", 1e-3, "rel"),
    "run-length-huffman-uint16": Recipe(
        lambda: (np.arange(20_000) ** 2 // 500_000 % 300).astype(np.uint16),
        chain(("run-length", {}), ("huffman", {"contexts": 2})),
        None,
    ),
    "lossless-huffman-int64": Recipe(
        lambda: np.where(np.arange(9000) % 7 < 3, 0, (np.arange(9000, dtype=np.int64) - 4000) ** 3), chain(("huffman", {})), None
    ),
    "adaptive-float32": Recipe(sea, "adaptive", 1e-3, "rel"),
    "adaptive-float64": Recipe(sun, "adaptive", 1e-3, "rel"),
    "adaptive-apart-float32": Recipe(sea, APART, 0.05),
    "int16-adaptive-float32": Recipe(
        lambda: sea() - 40, chain(INT16, ("adaptive-lorenzo", {"tile": 96}), ("zigzag", {}), ("adaptive-bitplane", {})), 4e-3
    ),
    "lossless-adaptive-int64": Recipe(
        lambda: (np.arange(8980, dtype=np.int64) - 4000) ** 2 // 7 + 10**12,
        chain(("adaptive-lorenzo", {"tile": 128}), ("plain-rate", {})),
        None,
    ),
    "lossless-adaptive-uint16": Recipe(
        lambda: np.where(np.arange(9000) < 4000, 40_000 + np.arange(9000) // 640 * 700, np.arange(9000) ** 2 // 2000).astype(
            "u2"
        ),
        chain(("adaptive-lorenzo", {"tile": 128}), ("adaptive-bitplane", {"segment": 32})),
        None,
    ),
    "raw-float32": Recipe(lambda: water()[:1, :20], "fast", 1e-3, raw=True),
    "raw-float64": Recipe(lambda: specials("float64")[:30], "planes", 1e-12, raw=True),
    "raw-big-endian": Recipe(lambda: big_endian()[50, 40:60], "fast", 1e-3, raw=True),
    "raw-empty": Recipe(lambda: np.empty((3, 0, 2), np.float32), "fast", 1e-3, raw=True),
    "raw-scalar": Recipe(lambda: np.array(1.25), "fast", 1e-3, raw=True),
    "tiled-float32": Recipe(sea, "tiled", 1e-3, "rel"),
    "tiled-float64": Recipe(sun, "tiled", 1e-3, "rel"),
    "tiled-outlier-float32": Recipe(sea, "tiled-outlier", 1e-3, "rel"),
    "tiled-outlier-float64": Recipe(gravity, "tiled-outlier", 1e-4, "rel"),
    "tiled-fixed-float32": Recipe(aquifer, "tiled-fixed", 1e-2, "rel"),
    "tiled-fixed-float64": Recipe(sun, "tiled-fixed", 1e-3, "rel"),
    "tiled-4d-float32": Recipe(aquifer, "tiled", 0.5),
    "tiled-holes-float32": Recipe(holes, "tiled", 1e-2),
    "tiled-1d-float32": Recipe(lambda: sea().reshape(-1), "tiled", 1e-3, "rel"),
    "tiled-adaptive-float64": Recipe(
        gravity, chain(QUANTIZER, ("tile-order", {}), ("adaptive-lorenzo", {}), ("outlier", {})), 0.5
    ),
    "lossless-tiled-uint16": Recipe(
        lambda: (np.arange(90 * 70) % 1009 * 61).astype("u2").reshape(90, 70),
        chain(("tile-order", {"axes": 1}), ("tiled-lorenzo", {"axes": 1}), ("outlier", {"segment": 64})),
        None,
    ),
    "outlier-int16-float32": Recipe(sea, chain(INT16, ("lorenzo-1d", {"region": 32}), ("outlier", {})), 2e-4),
    "outlier-wide-float64": Recipe(
        lambda: np.arange(9000) % 97 / 64 + 2.0**40, chain(QUANTIZER, ("lorenzo-1d", {}), ("outlier", {"segment": 256})), 0.01
    ),
    "lorenzo-nd-float64": Recipe(gravity, chain(QUANTIZER, ("lorenzo-nd", {}), ("plain-rate", {})), 1e-3, "rel"),
}

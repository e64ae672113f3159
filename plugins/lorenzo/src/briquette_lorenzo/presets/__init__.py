"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from importlib.resources import files

_HERE = files(__name__)

TILED = _HERE / "tiled.toml"
TILED_OUTLIER = _HERE / "tiled-outlier.toml"
TILED_FIXED = _HERE / "tiled-fixed.toml"

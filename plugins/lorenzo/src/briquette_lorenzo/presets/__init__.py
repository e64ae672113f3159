"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from briquette.packinfo import preset_file

TILED = preset_file(__name__, "tiled.toml")
TILED_OUTLIER = preset_file(__name__, "tiled-outlier.toml")
TILED_FIXED = preset_file(__name__, "tiled-fixed.toml")

"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from briquette.packinfo import preset_file

ADAPTIVE = preset_file(__name__, "adaptive.toml")
FAST = preset_file(__name__, "fast.toml")
PLANES = preset_file(__name__, "planes.toml")
ZIGZAG = preset_file(__name__, "zigzag.toml")
MASKED = preset_file(__name__, "masked.toml")

"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from importlib.resources import files

_HERE = files(__name__)

ADAPTIVE = _HERE / "adaptive.toml"
FAST = _HERE / "fast.toml"
PLANES = _HERE / "planes.toml"
ZIGZAG = _HERE / "zigzag.toml"
MASKED = _HERE / "masked.toml"

"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from importlib.resources import files

_HERE = files(__name__)

ARCHIVE = _HERE / "archive.toml"

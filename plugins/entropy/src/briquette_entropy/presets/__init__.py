"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from briquette.packinfo import preset_file

ARCHIVE = preset_file(__name__, "archive.toml")

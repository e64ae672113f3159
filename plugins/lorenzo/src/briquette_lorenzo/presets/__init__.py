"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from functools import partial
from pkgutil import get_data  # zip files too; importlib.resources, which does more, is slow to import


def _text(file: str) -> str:
    found = get_data(__name__, file)
    assert found is not None
    return found.decode()


TILED = partial(_text, "tiled.toml")
TILED_OUTLIER = partial(_text, "tiled-outlier.toml")
TILED_FIXED = partial(_text, "tiled-fixed.toml")

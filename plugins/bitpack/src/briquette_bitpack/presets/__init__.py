"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from functools import partial
from pkgutil import get_data  # zip files too; importlib.resources, which does more, is slow to import


def _text(file: str) -> str:
    found = get_data(__name__, file)
    assert found is not None
    return found.decode()


ADAPTIVE = partial(_text, "adaptive.toml")
FAST = partial(_text, "fast.toml")
PLANES = partial(_text, "planes.toml")
ZIGZAG = partial(_text, "zigzag.toml")
MASKED = partial(_text, "masked.toml")

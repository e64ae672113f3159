"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from functools import partial
from pkgutil import get_data  # zip files too; importlib.resources, which does more, is slow to import


def _text(file: str) -> str:
    found = get_data(__name__, file)
    assert found is not None
    return found.decode()


CHUNKED = partial(_text, "chunked.toml")
LOSSLESS = partial(_text, "lossless.toml")
LEADING_BITS = partial(_text, "leading-bits.toml")
LEADING_REPEATS = partial(_text, "leading-repeats.toml")
PACKED_CHUNKS = partial(_text, "packed-chunks.toml")
PACKED_WIDTHS = partial(_text, "packed-widths.toml")
REPEATED_PLANES = partial(_text, "repeated-planes.toml")

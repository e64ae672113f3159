"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from importlib.resources import files

_HERE = files(__name__)

CHUNKED = _HERE / "chunked.toml"
LOSSLESS = _HERE / "lossless.toml"
LEADING_BITS = _HERE / "leading-bits.toml"
PACKED_CHUNKS = _HERE / "packed-chunks.toml"

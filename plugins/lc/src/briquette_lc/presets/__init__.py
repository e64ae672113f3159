"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from importlib.resources import files

_HERE = files(__name__)

CHUNKED = _HERE / "chunked.toml"
LOSSLESS = _HERE / "lossless.toml"
LEADING_BITS = _HERE / "leading-bits.toml"
LEADING_REPEATS = _HERE / "leading-repeats.toml"
PACKED_CHUNKS = _HERE / "packed-chunks.toml"
PACKED_WIDTHS = _HERE / "packed-widths.toml"
REPEATED_PLANES = _HERE / "repeated-planes.toml"

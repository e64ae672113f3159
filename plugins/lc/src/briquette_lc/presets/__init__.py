"""Presets: pipelines as TOML files beside this module, read when they are asked for."""

from __future__ import annotations

from briquette.packinfo import preset_file

CHUNKED = preset_file(__name__, "chunked.toml")
LOSSLESS = preset_file(__name__, "lossless.toml")
LEADING_BITS = preset_file(__name__, "leading-bits.toml")
LEADING_REPEATS = preset_file(__name__, "leading-repeats.toml")
PACKED_CHUNKS = preset_file(__name__, "packed-chunks.toml")
PACKED_WIDTHS = preset_file(__name__, "packed-widths.toml")
REPEATED_PLANES = preset_file(__name__, "repeated-planes.toml")

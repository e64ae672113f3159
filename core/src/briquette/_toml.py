"""TOML reading: the standard library's parser, or tomli below Python 3.11."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast


def _parser() -> Any:
    try:
        return import_module("tomllib")
    except ImportError:
        return import_module("tomli")


_impl = _parser()

#: what `loads` raises for text that is not TOML; its message names line and column
TOMLDecodeError = cast("type[ValueError]", _impl.TOMLDecodeError)


def loads(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text."""
    return cast("dict[str, Any]", _impl.loads(text))

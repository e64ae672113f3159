"""Adds ``briquette check`` to the command line; imported when the first hook is called, so it imports next to nothing."""

from __future__ import annotations

from typing import Any

from briquette.hooks import hookimpl


@hookimpl
def cli_commands() -> list[Any]:
    """Return the command ``check``."""
    from .cli import check

    return [check]

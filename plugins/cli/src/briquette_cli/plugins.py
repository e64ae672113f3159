"""Commands that plugins add through the hook ``cli_commands``."""

from __future__ import annotations

from collections.abc import Container

import click


def extra_commands(taken: Container[str]) -> dict[str, click.Command]:
    """Return the commands of plugins by name; whatever is wrong with one is said on standard error and skipped.

    A name of `taken`, or one that an earlier plugin has, is not replaced.
    """
    found: dict[str, click.Command] = {}
    for command in _offered():
        name = getattr(command, "name", None)
        if not isinstance(command, click.Command) or not name:
            _skip(f"a plugin offers {command!r}, which is no click command with a name")
        elif name in taken or name in found:
            _skip(f"a plugin's command {name!r} is left out: the name is taken")
        else:
            found[name] = command
    return found


def _offered() -> list[object]:
    try:
        from briquette import discovery

        return list(discovery.hooks().cli_commands())
    except Exception as exc:  # settings that cannot be read, say: the command that needs them reports it
        _skip(f"the commands of plugins are left out: {exc}")
        return []


def _skip(text: str) -> None:
    if text not in _said:
        _said.add(text)
        click.echo(f"warning: {text}", err=True)


_said: set[str] = set()

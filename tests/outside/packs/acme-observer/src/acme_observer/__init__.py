"""A briquette plugin that writes down plans, compilations and runs, and adds a command that sums them up."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from briquette.hooks import hookimpl
from briquette.packinfo import PackInfo

if TYPE_CHECKING:
    import click

    from briquette.plan import Plan
    from briquette.record import RunRecord

PACK = PackInfo(hook_api=">=1,<2")


class Observer:
    """Append a line of JSON for each event to the file that ACME_OBSERVER_LOG names; without it, do nothing."""

    @hookimpl
    def plan_made(self, plan: Plan) -> None:
        """A pipeline was planned: which stages run as one kernel, and why others do not."""
        self._write("plan", target=plan.target, groups=plan.forward.groups, reasons=[r.reason for r in plan.forward.reasons])

    @hookimpl
    def compiled(self, source_name: str, seconds: float, cached: bool) -> None:
        """A group's code is ready; hooks may take any subset of the arguments."""
        self._write("compiled", source=source_name, seconds=seconds, cached=cached)

    @hookimpl
    def run_finished(self, direction: str, record: RunRecord) -> None:
        """A compression or decompression ended without an error."""
        self._write("run", direction=direction, results=record.results)

    @hookimpl
    def cli_commands(self) -> list[click.Command]:
        """Add ``briquette runs``."""
        return [_command()]

    def _write(self, event: str, **facts: Any) -> None:
        path = os.environ.get("ACME_OBSERVER_LOG")
        if path:
            with open(path, "a", encoding="utf-8") as log:  # one write a line: threads and processes may share the file
                log.write(json.dumps({"event": event, **facts}, default=str) + "\n")


def _command() -> click.Command:
    import click  # only the command line needs it

    @click.command("runs")
    @click.argument("log", type=click.Path(exists=True, dir_okay=False))
    def runs(log: str) -> None:
        """Sum up LOG, which the plugin wrote: how often each thing happened."""
        with open(log, encoding="utf-8") as lines:
            events = [json.loads(line)["event"] for line in lines]
        for event in sorted(set(events)):
            click.echo(f"{event:<10}{events.count(event)}")

    return runs

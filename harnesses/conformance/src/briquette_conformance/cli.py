"""``briquette check PACK``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from briquette._folders import normalized
from briquette.errors import BriquetteError


class NotConforming(BriquetteError):
    """A pack failed the kit, or nothing could be proven of it."""


@click.command()
@click.argument("pack")
@click.option("--level", type=click.Choice(["quick", "full"]), default="quick", show_default=True, help="How thoroughly to look.")
@click.option("--stage", "stages", multiple=True, metavar="NAME", help="Only this stage; may be given several times.")
@click.option("--only", multiple=True, metavar="CHECK", help="Only this check; may be given several times.")
@click.option("--frozen", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Archives of the pack's releases.")
@click.option(
    "--freeze", type=click.Path(file_okay=False, path_type=Path), help="Write an archive of each stage there, for later releases."
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Also write the findings as JUnit XML.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first fault.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, and nothing else, to standard output.")
def check(
    pack: str, as_json: bool, junit: Path | None, level: Any, frozen: Path | None, freeze: Path | None, **choice: Any
) -> None:
    """Show that a pack's stages keep what they declare, on every target of this machine.

    Exits with 1 when anything failed, or nothing could be proven; then nothing is written to the folder of --freeze.
    """
    from .base import Options
    from .frozen import freeze as keep
    from .running import context, run

    def tell(finding: Any) -> None:
        if not as_json and finding.status == "failed":
            click.echo(f"failed: {finding.subject}, {finding.check}", err=True)

    options = Options(level=level, frozen=frozen)
    report = run(normalized(pack), options, told_to=tell, **choice)
    if junit is not None:
        junit.write_text(report.junit(), encoding="utf-8")
    click.echo(report.dumps() if as_json else report.table())
    if not report.ok:
        raise NotConforming(f"{pack} does not conform: {report.count('failed')} failed, {report.count('proven')} proven")
    if freeze is not None:
        written = keep(context(normalized(pack), options, choice["stages"]), freeze)
        click.echo(f"{len(written)} new archives in {freeze}", err=True)

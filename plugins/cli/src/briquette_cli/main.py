"""The `briquette` command: finds subcommands without importing them, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import click

from .exits import EXIT_CODES_HELP, ExitCode, exit_code, is_broken_pipe, is_expected, message

#: name -> (module, attribute, short help); the help stands here so that listing commands imports none of them
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "compress": ("compress", "compress", "Compress an array file within an error bound."),
    "decompress": ("compress", "decompress", "Restore the array of an archive."),
    "info": ("inspect", "info", "Show what an archive holds."),
    "verify": ("inspect", "verify", "Check an archive's integrity, and the bound against the original."),
    "plan": ("inspect", "plan", "Show how a pipeline runs: groups, reasons, launches, buffers."),
    "bench": ("bench", "bench", "Compare pipelines, targets and fusion modes in one run."),
    "tune": ("tune", "tune", "Measure which geometry of a pipeline's kernels runs fastest here."),
    "demo": ("demo", "demo", "Compress a bundled field with every preset; a table and a picture."),
    "presets": ("listing", "presets", "List the presets, or print one as TOML."),
    "stages": ("listing", "stages", "List the stages that pipelines can be made of."),
    "targets": ("listing", "targets", "List the targets and whether they can run here."),
    "packs": ("listing", "packs", "List the installed packs, broken ones with their errors."),
    "new-pack": ("newpack", "new_pack", "Write a pack of your own that works as it stands, to be filled in."),
    "cache": ("caching", "cache", "Show, fill or empty the cache of compiled code."),
}


class CommandLine(click.Group):
    """A group whose subcommands are imported when they run; plugins may add more."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *self._extra()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return self._extra().get(cmd_name)
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"{__package__}.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])
        extra = self._extra()
        if extra:
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(name, command.get_short_help_str(limit=60)) for name, command in extra.items()])

    def _extra(self) -> dict[str, click.Command]:
        from .plugins import extra_commands

        return extra_commands(taken=COMMANDS)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; as a program (`standalone_mode`) errors become a message and an exit code."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        given = list(sys.argv[1:] if args is None else args)
        debug, given = _take_debug(given)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = partial(_show_warning, warnings.showwarning)
                result = super().main(given, prog_name, complete_var, False, **extra)
            sys.stdout.flush()
        except click.exceptions.Abort:
            click.echo("error: interrupted", err=True)
            sys.exit(130)
        except Exception as exc:
            _fail(exc, debug)
        sys.exit(int(result) if isinstance(result, int) else ExitCode.OK)


def _take_debug(args: list[str]) -> tuple[bool, list[str]]:
    """Return whether ``--debug`` stands among `args`, wherever that is, and the rest."""
    end = args.index("--") if "--" in args else len(args)
    return "--debug" in args[:end], [a for a in args[:end] if a != "--debug"] + args[end:]


def _show_warning(usual: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Show what briquette warns of as a line for people; other warnings as Python does."""
    if category.__module__.partition(".")[0] == "briquette":
        click.echo(f"warning: {message}", err=True)
    else:
        usual(message, category, *where, **more)


def _fail(error: Exception, debug: bool) -> NoReturn:
    if is_broken_pipe(error):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains once more when it ends
        sys.exit(ExitCode.FAILURE)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # the help, as --help shows it
        sys.exit(exit_code(error))
    if debug:
        traceback.print_exception(error)
    text = message(error)
    if not is_expected(error):
        first, newline, rest = text.partition("\n")
        text = f"{type(error).__name__}: {first} (a fault in briquette or a pack; --debug shows where){newline}{rest}"
    click.echo(f"error: {text}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"see: {error.ctx.command_path} --help", err=True)
    sys.exit(exit_code(error))


@click.group(
    cls=CommandLine,
    epilog=EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error; may stand anywhere.")
@click.version_option(None, "--version", package_name="briquette-core", prog_name="briquette", message="%(prog)s %(version)s")
def cli(debug: bool) -> None:
    """Error-bounded compression of scientific arrays, as pipelines of fusable plug-in stages.

    Every reporting command takes --json and then writes nothing but JSON to standard output.
    """


def main() -> None:
    """Entry point of the `briquette` program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # under LC_ALL=C a file name must not end the program
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that temporary files go
    cli(prog_name="briquette")


if __name__ == "__main__":
    main()

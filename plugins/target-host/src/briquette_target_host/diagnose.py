"""From what a compiler printed to a message that says where the fault is and whose it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from briquette.sources import owner_of
from briquette.target import KernelSource

from .compiler import INCLUDE_DIRECTORY, SOURCE_FILE

_ERROR: Final = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_CONTEXT_LINES: Final = 6
_OUTPUT_LINES: Final = 60


def explain(source: KernelSource, headers: Mapping[str, str], output: str, compiler: str) -> str:
    """Return the message of a `CompileError`: the fault, who owns it, the numbered source near it, the output.

    Parameters
    ----------
    source : KernelSource
    headers : mapping of str to str
        Every header of the translation unit: name to text.
    output : str
        What the compiler printed, run on a tree made by `compiler.write_tree`.
    compiler : str
        Name and version, for the message.
    """
    lines = [f"{compiler} cannot compile {source.name!r}"]
    match = _ERROR.search(output)
    if match:
        file, number = match["file"].removeprefix("./"), int(match["line"])
        header = file.removeprefix(f"{INCLUDE_DIRECTORY}/")
        if header in headers:
            where, text = f"<{header}>", headers[header]
        elif file == SOURCE_FILE:
            where, text = "the generated source", source.text
        else:
            where, text = file, ""
        lines[0] += f": {where}, line {number}: {match['text']}"
        if header in headers:
            lines.append(f"<{header}> belongs to {owner_of(header)}")
        second = _ERROR.search(output, match.end())
        # An error inside a harness names the policy, if not itself, then in the instantiations printed around it.
        around = output[: second.start() if second else None]
        for package in _mentioned(match["text"], header, headers) or _mentioned(around, header, headers):
            lines.append(f"the message speaks of {package}, which belongs to {owner_of(package)}")
        if text:
            lines.append(_numbered(text, number))
    shown = output.splitlines()
    lines.append("the compiler said:")
    lines += shown[:_OUTPUT_LINES]
    if len(shown) > _OUTPUT_LINES:
        lines.append(f"... and {len(shown) - _OUTPUT_LINES} more lines; set BRIQUETTE_DUMP_DIR to keep the source")
    return "\n".join(lines)


def _mentioned(text: str, header: str, headers: Mapping[str, str]) -> list[str]:
    """Packages of `headers`, but for that of `header`, whose namespace `text` names, in order of appearance."""
    packages = {each.split("/", 1)[0] for each in headers} - {header.split("/", 1)[0]}
    return list(dict.fromkeys(word for word in re.findall(r"\b\w+(?=::)", text) if word in packages))


def _numbered(text: str, number: int) -> str:
    """Lines of `text` around line `number`, with their numbers and a mark."""
    lines = text.splitlines()
    first, last = max(1, number - _CONTEXT_LINES), min(len(lines), number + _CONTEXT_LINES)
    return "\n".join(f"{'>' if at == number else ' '} {at:5d} | {lines[at - 1]}" for at in range(first, last + 1))

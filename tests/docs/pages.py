"""Code blocks of the README and of the pages in docs, and what the comment before a block says of it.

========================== =======================================================================
comment                    meaning
========================== =======================================================================
(none)                     it runs, after the page's blocks before it: Python in one namespace that has
                           `bq`, `np` and `x`; shell in a folder that has ``field.npy``
needs a compiler           it runs where the host target does
needs a GPU                it runs where the cuda target does
with packs                 it needs the example packs of tests/outside/packs
not run: REASON            it does not
from PACK/FILE             it is a part of a file of those packs, or parts between lines of ``...``
generated: WHAT            `tools/composed_example.py` writes it
edit: FILE, three commands test_fifteen_minutes.py and tests/packaging run these
with the pack              likewise
========================== =======================================================================

A TOML block that begins with ``# NAME.toml`` is written to that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = {"sh", "python"}
ELSEWHERE = ("three commands", "with the pack")

_BLOCK = re.compile(r"^(?:<!-- (?P<note>[^\n]*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, line, language, text, and what stands in the comment before it."""

    page: Path
    line: int
    language: str
    text: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def source(self) -> str | None:
        """The file that the block shows a part of."""
        return next((note.removeprefix("from ") for note in self.notes if note.startswith("from ")), None)

    @property
    def runs(self) -> bool:
        if self.language not in RUN or self.source is not None:
            return False
        return not any(note.startswith("not run: ") or note in ELSEWHERE for note in self.notes)

    @property
    def file(self) -> str | None:
        """The file that a TOML block is written to."""
        found = re.match(r"# (\w+\.toml)\b", self.text) if self.language == "toml" else None
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    """Return the page's blocks, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        note = match["note"] or ""
        notes = (note,) if note.startswith("not run: ") else tuple(filter(None, note.split(", ")))
        found.append(Block(page, text[: match.start()].count("\n") + 1, match["language"], match["text"], notes))
    return found

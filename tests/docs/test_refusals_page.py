"""docs/refusals.md and the code name the same refusals."""

from __future__ import annotations

import re

from pages import ROOT
from refusal_messages import messages

PAGE = ROOT / "docs" / "refusals.md"


def quoted() -> set[str]:
    """Return what the first column of the tables quotes."""
    rows = re.findall(r"^\| (`.*?`) \| [^|]*\| [^|]*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {text for row in rows for text in re.findall(r"`([^`]+)`", row)}


def test_every_message_that_the_page_quotes_is_in_the_code() -> None:
    assert len(quoted()) > 40
    gone = quoted() - set(messages(ROOT))
    assert not gone, f"docs/refusals.md quotes what no code says: {sorted(gone)}"


def test_every_refusal_is_on_the_page() -> None:
    new = {text: file for text, file in messages(ROOT).items() if text not in quoted()}
    assert not new, f"docs/refusals.md does not tell what to do about: {new}"

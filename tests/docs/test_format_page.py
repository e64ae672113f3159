"""docs/format.md is enough to read archives, and says of every first-party stage which version it describes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import plain_reader
import pytest
from numpy.typing import NDArray
from pages import ROOT

import briquette as bq
from briquette import discovery

PAGE = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")


def field(n: int, dtype: str, share: float) -> NDArray[Any]:
    """Return a field in which `share` of the values are NaN, some in runs, and others beyond any code."""
    rng = np.random.default_rng(n)
    x = np.cumsum(rng.standard_normal(n)).astype(dtype)
    x[rng.random(n) < share] = np.nan
    if share and n > 100:
        x[n // 2 : n // 2 + n // 10] = np.inf
        x[n // 3] = 3e38
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", ["fast", "planes", "zigzag"])
def test_a_reader_written_from_the_page_decodes_archives(preset: str, dtype: str) -> None:
    for n, share in ((5, 0.0), (3000, 0.0), (20_011, 0.001), (20_011, 0.3), (600_000, 0.01)):
        x = field(n, dtype, share)
        for eb in (1e-2, 1e-9):
            blob = bytes(bq.compress(x, eb, pipeline=preset, target="numpy"))
            assert plain_reader.read(blob).tobytes() == bq.decompress(blob, target="numpy").tobytes(), (n, share, eb)


def test_the_reader_shares_no_code_with_briquette() -> None:
    text = (ROOT / "tests" / "docs" / "plain_reader.py").read_text(encoding="utf-8")
    assert not re.findall(r"^(?:import|from) briquette", text, re.MULTILINE)


def test_every_first_party_stage_has_a_section_of_its_version() -> None:
    sections = {}
    for heading in re.findall(r"^### (.*), version (\d+)$", PAGE, re.MULTILINE):
        sections |= dict.fromkeys(re.findall(r"`([a-z0-9-]+)`", heading[0]), int(heading[1]))
    sections |= dict.fromkeys(("difference", "negabinary"), 1)  # in the section of the ops on byte-chunks
    registry = discovery.registry()
    for name in registry.stages():
        if registry.stage_origin(name).distribution.startswith("briquette-"):
            cls = registry.stage_class(name)
            assert sections.get(name) == cls.format_version, f"no section `{name}`, version {cls.format_version}"


def test_the_version_history_ends_with_what_is_written() -> None:
    rows = re.findall(r"^\| (\d+\.\d+) \| \d{4}-\d{2} \|", PAGE, re.MULTILINE)
    facts = bq.info(bytes(bq.compress(np.zeros(10, np.float32), 1.0)))
    assert rows[-1] == facts["format"]
    assert f"# Archive format, version {facts['format']}" in PAGE

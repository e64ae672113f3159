"""The site builds without a warning, every page is in it, and what pages point to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT

DOCS = ROOT / "docs"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, str(DOCS), str(tmp_path / "site")], text=True, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html")
        assert (tmp_path / "site" / name).is_file()
        assert f'href="{name}"' in index or page.stem == "index", f"{name} is not in the navigation"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"

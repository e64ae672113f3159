"""What pages show runs: every Python and shell block, but for those that say why not; parts of files are parts of these files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ELSEWHERE, PAGES, ROOT, Block, blocks

from briquette.selection import choose_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EVERY = [block for page in PAGES for block in blocks(page)]
NEEDS = {"needs a compiler": "host", "needs a GPU": "cuda"}


def missing(block: Block) -> str | None:
    """Return why the block cannot run here, or None."""
    for note in block.notes:
        if note in NEEDS:
            target = choose_target(NEEDS[note])
            reason = None if target is None else target.unavailable()
            if reason:
                return f"{block} {note}: {reason}"
    return None


def test_every_comment_before_a_block_means_something() -> None:
    known = (*NEEDS, *ELSEWHERE, "with packs")
    prefixes = ("not run: ", "from ", "generated: ", "edit: ")
    odd = [f"{b}: {note}" for b in EVERY for note in b.notes if note not in known and not note.startswith(prefixes)]
    assert not odd
    assert len([block for block in EVERY if block.runs]) >= 12


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.runs for b in blocks(p))], ids=lambda p: p.stem)
def test_blocks_run(page: Path, tmp_path: Path, example_packs: Path) -> None:
    wanted, skipped = [], []
    for block in blocks(page):
        if block.file is not None:
            wanted.append((block.file, "toml", block.text))
        elif block.runs:
            why = missing(block)
            if why is None:
                wanted.append((str(block), block.language, block.text))
            else:
                skipped.append(why)
    dropped = ("BRIQUETTE_", "XDG_CONFIG")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env["XDG_CONFIG_HOME"] = str(tmp_path / "no-config")
    if any("with packs" in block.notes for block in blocks(page)):
        env["PYTHONPATH"] = str(example_packs)
    command = [sys.executable, str(Path(__file__).with_name("run_blocks.py"))]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, input=json.dumps(wanted), text=True, capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    if skipped:
        pytest.skip("; ".join(skipped))


@pytest.mark.parametrize("block", [b for b in EVERY if b.source is not None], ids=str)
def test_parts_of_files_are_parts_of_these_files(block: Block) -> None:
    assert block.source is not None
    source = (ROOT / "tests" / "outside" / "packs" / block.source).read_text(encoding="utf-8")
    for part in block.text.split("    ...\n"):
        assert part.strip("\n") in source, f"{block} shows a {block.source} that is not the pack's:\n{part}"


@pytest.mark.parametrize("block", [b for b in EVERY if b.language == "toml"], ids=str)
def test_toml_is_toml(block: Block) -> None:
    assert tomllib.loads(block.text)


def test_generated_source_is_what_the_harness_composes() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    from composed_example import PAGE, filled

    page = PAGE.read_text(encoding="utf-8")
    assert page.count("struct Chain {") == 2
    assert filled(page) == page, "run: python tools/composed_example.py --write"

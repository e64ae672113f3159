"""The page "Write a stage in 15 minutes" does what it says: its edits, applied in order, fail and pass where it says so."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from briquette.selection import choose_target
from briquette_cli.newpack import write

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fifteen-minutes.md"
OWN_TESTS = ("tests/test_stage.py", "tests/test_identity.py")  # the conformance kit is a distribution of its own
SECONDS = 240  # of one command, which takes about one on an idle machine


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """The pack as `new-pack` writes it, found as an editable install finds it."""
    host = choose_target("host")
    assert host is not None
    reason = host.unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")
    write("acme-delta", "predictor", tmp_path / "acme-delta")
    site, pip = tmp_path / "site", [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    run([*pip, "--no-build-isolation", "--target", str(site), str(tmp_path / "acme-delta")], tmp_path)
    shutil.rmtree(site / "acme_delta")
    return tmp_path / "acme-delta"


def run(command: list[str], cwd: Path, code: int = 0) -> str:
    path = os.pathsep.join(map(str, (cwd / "acme-delta" / "src", cwd / "site")))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    child = subprocess.Popen(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = child.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # it says where each of its threads stands
        out, err = child.communicate()
        pytest.fail(f"{' '.join(command)} has not ended after {SECONDS} s:\n{out}{err}")
    assert child.returncode == code, out + err
    return out


def own_tests(pack: Path, code: int) -> str:
    tests = [str(pack / name) for name in OWN_TESTS]
    return run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], pack.parent, code)


def edits() -> list[tuple[str, str]]:
    found = re.findall(r"<!-- edit: (\S+) -->\n```diff\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == 3
    return found


def apply(pack: Path, name: str, diff: str) -> None:
    """Replace each removed line, which must be there once, by the added lines that follow it."""
    text = (pack / name).read_text(encoding="utf-8")
    for removed, added in re.findall(r"^-(.*\n)((?:\+.*\n)*)", diff, re.MULTILINE):
        assert text.count(removed) == 1, f"{name} does not hold once: {removed}"
        text = text.replace(removed, "".join(line[1:] + "\n" for line in added.splitlines()))
    (pack / name).write_text(text, encoding="utf-8")


@pytest.mark.thorough  # it starts tests within tests
def test_the_page_leads_where_it_says(pack: Path) -> None:
    stage, answer, policy = edits()
    assert "passed" in own_tests(pack, 0)
    apply(pack, *stage)
    apply(pack, *answer)
    said = own_tests(pack, 1)
    failed = set(re.findall(r"^FAILED \S*(tests/\S+)::", said, re.MULTILINE))
    assert failed == {"tests/test_identity.py"}
    assert re.search(r"FAILED \S*::test_every_way_gives_the_same_bytes", said)
    assert "AssertionError: 2 different archives of" in said
    apply(pack, *policy)
    assert "passed" in own_tests(pack, 0)

    np.save(pack.parent / "field.npy", np.sin(np.arange(50_000) / 300).astype(np.float32))
    (block,) = re.findall(r"<!-- with the pack -->\n```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines():
        words = line.partition("  #")[0].split()
        assert words[0] == "briquette"
        said = run([sys.executable, "-m", "briquette_cli.main", *words[1:]], pack.parent)
        if words[1] == "plan":
            assert said.count(": 1 kernel launch\n") == 2

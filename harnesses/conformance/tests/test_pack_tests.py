"""The kit inside a pack's own pytest run: nothing of it is replaced unnoticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from briquette.errors import DeclarationError
from briquette_conformance import PackConformance
from briquette_conformance.base import CHECKS
from briquette_conformance.running import selected

START = "from briquette_conformance import PackConformance\nimport pytest\n\n"


def outcome(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Run a test module in a pytest of its own."""
    (folder / "test_pack.py").write_text(START + text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options, "test_pack.py"]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=300)
    return done.returncode, done.stdout


def test_redefining_a_test_of_the_kit_is_an_error() -> None:
    with pytest.raises(DeclarationError, match="redefines test_a_stage of the kit"):
        type("TestMine", (PackConformance,), {"pack": "acme", "test_a_stage": lambda self: None})


def test_a_class_without_a_pack_is_an_error() -> None:
    with pytest.raises(DeclarationError, match="names no pack"):
        type("TestMine", (PackConformance,), {})


REPLACED = """
class TestMine(PackConformance):
    pack = "briquette-lorenzo"

TestMine.test_a_stage = lambda self: None
"""
SKIPPED = """
@pytest.mark.skip(reason="no time")
class TestMine(PackConformance):
    pack = "briquette-lorenzo"
"""


def test_replacing_one_later_fails(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, REPLACED, "-k", "overridden")
    assert status == 1
    assert "TestMine.test_a_stage is not the kit's any more" in text


def test_skipping_the_class_fails(tmp_path: Path) -> None:
    status, text = outcome(tmp_path, SKIPPED, "-k", "overridden")
    assert status != 0, text
    assert "marks tests of the kit skip" in text


def test_every_check_has_a_test_of_each_stage(tmp_path: Path) -> None:
    text = 'class TestMine(PackConformance):\n    pack = "briquette-lorenzo"\n    def test_more(self):\n        pass\n'
    status, listed = outcome(tmp_path, text, "--collect-only")
    assert status == 0
    quick = [c for c in selected((), "quick") if c.per_stage]
    for stage in ("lorenzo-1d", "adaptive-lorenzo"):
        for check in quick:
            assert f"test_a_stage[{stage}-{check.name}]" in listed
    assert "test_more" in listed
    assert len(CHECKS) > len(quick) + 3

"""Correct packs pass the kit; each wrong one is caught, without a GPU, by a message that points at the fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pack_site import WITH_STAGES, check, failures, lay
from zoo import FAULTS, Fault

pytestmark = pytest.mark.slow


#: correct packs that `make test` leaves to `make test-all`: every check takes longest on these
LONG = ("acme-warp", "acme-coder", "acme-roles")


@pytest.mark.parametrize("pack", [pytest.param(p, marks=pytest.mark.thorough) if p in LONG else p for p in WITH_STAGES])
def test_a_correct_pack_passes(pack: str, tmp_path: Path) -> None:
    lay(tmp_path, pack)
    status, report, said = check(tmp_path, pack)
    assert failures(report) == []
    assert (status, report["ok"]) == (0, True), said
    assert report["proven"] > 20


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    lay(tmp_path, fault.pack, fault.edits)
    options = [*(("--stage", fault.stage) if fault.stage else ()), *fault.options]
    status, report, said = check(tmp_path, fault.pack, "--fail-fast", *options)
    assert status == 1, said
    found = failures(report)
    assert [c for _, c, _ in found] == [fault.check], found
    assert re.search(fault.says, found[0][2], re.DOTALL), found[0][2]
    assert found[0][0] in (fault.stage, fault.pack)

"""What a report says, and when a run counts as passed."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from briquette_conformance.report import Finding, Report


def report(*findings: Finding) -> Report:
    return Report("acme", "1.0", "quick", ["no cuda: no driver"], list(findings))


PROVEN = Finding("a", "inverse", "proven", ("numpy",), "8 fields", 0.5)
FAILED = Finding("a", "role", "failed", (), "reads across\nmore", 0.1)
SKIPPED = Finding("b", "races", "skipped", (), "no compiler")


def test_nothing_proven_is_no_pass() -> None:
    assert not report().ok
    assert not report(SKIPPED).ok
    assert "nothing was proven" in report(SKIPPED).table()


def test_one_failure_fails() -> None:
    assert report(PROVEN, SKIPPED).ok
    assert not report(PROVEN, FAILED).ok


def test_the_table_tells_what_was_proven_where_and_why_not() -> None:
    text = report(PROVEN, FAILED, SKIPPED).table()
    for line in (
        "proven   inverse [numpy]: 8 fields",
        "FAILED   role: reads across",
        "skipped  races: no compiler",
        "no cuda: no driver",
    ):
        assert line in text


def test_junit_and_json_hold_every_finding() -> None:
    found = report(PROVEN, FAILED, SKIPPED)
    suite = ElementTree.fromstring(found.junit())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert suite.find("./testcase[@name='role']/failure").get("message") == "reads across"  # type: ignore[union-attr]
    held = json.loads(found.dumps())
    assert (held["ok"], held["proven"], held["failed"], len(held["findings"])) == (False, 1, 1, 3)

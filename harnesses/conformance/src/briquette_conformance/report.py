"""What a run of the kit found, and the forms in which it is told: a table, JSON, JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree

Status = Literal["proven", "failed", "skipped"]


class Fault(Exception):
    """A pack does not keep what it declares; the message points at the fault."""


class NotHere(Exception):
    """A check cannot run here, or has nothing to look at; the message says why."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    subject : str
        The pack, or a stage with its parameters where they are not the defaults.
    check : str
    status : {"proven", "failed", "skipped"}
    targets : tuple of str
        Where it was proven.
    detail : str
        What was proven in figures; where and how it failed; why it was skipped.
    seconds : float
    """

    subject: str
    check: str
    status: Status
    targets: tuple[str, ...] = ()
    detail: str = ""
    seconds: float = 0.0


@dataclass
class Report:
    """The findings of a run.

    Attributes
    ----------
    pack, version, level : str
    notes : list of str
        What the header of the run says: targets and tools that are not here.
    findings : list of Finding
    """

    pack: str
    version: str
    level: str
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, status: Status) -> int:
        return sum(f.status == status for f in self.findings)

    @property
    def ok(self) -> bool:
        """Something was proven and nothing failed."""
        return not self.count("failed") and self.count("proven") > 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        counts = {status: self.count(status) for status in ("proven", "failed", "skipped")}
        head = {"pack": self.pack, "version": self.version, "level": self.level, "ok": self.ok, **counts}
        return {**head, "notes": self.notes, "findings": [asdict(f) for f in self.findings]}

    def dumps(self) -> str:
        return json.dumps(self.as_json(), indent=2)

    def junit(self) -> str:
        """Return JUnit XML: a test case for each finding."""
        suite = ElementTree.Element("testsuite", name=f"briquette check {self.pack}", tests=str(len(self.findings)))
        suite.set("failures", str(self.count("failed")))
        suite.set("skipped", str(self.count("skipped")))
        for f in self.findings:
            case = ElementTree.SubElement(suite, "testcase", classname=f.subject, name=f.check, time=f"{f.seconds:.3f}")
            if f.status != "proven":
                kind = "failure" if f.status == "failed" else "skipped"
                ElementTree.SubElement(case, kind, message=_printable(f.detail.split("\n")[0])).text = _printable(f.detail)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)

    def table(self) -> str:
        """Return the report for people: a block for each subject, faults in full."""
        lines = [f"{self.pack} {self.version}, level {self.level}"]
        lines += [f"  note: {note}" for note in self.notes]
        for subject in dict.fromkeys(f.subject for f in self.findings):
            mine = [f for f in self.findings if f.subject == subject]
            lines += ["", subject]
            lines += _rows(f for f in mine if f.status != "skipped")
            lines += [f"  skipped  {f.check}: {f.detail}" for f in mine if f.status == "skipped"]
        seconds = sum(f.seconds for f in self.findings)
        said = f"{self.count('proven')} proven, {self.count('failed')} failed, {self.count('skipped')} skipped in {seconds:.1f} s"
        lines += ["", f"{'passes' if self.ok else 'FAILS'}: {said}"]
        if not self.findings or not self.count("proven"):
            lines[-1] += "; nothing was proven, which is no pass"
        return "\n".join(lines)


def _rows(findings: Iterable[Finding]) -> list[str]:
    lines = []
    for f in findings:
        if f.status == "failed":
            first, *rest = f.detail.split("\n")
            lines += [f"  FAILED   {f.check}: {first}", *(f"           {line}" for line in rest)]
        else:
            where = f" [{', '.join(f.targets)}]" if f.targets else ""
            lines.append(f"  proven   {f.check}{where}{': ' + f.detail if f.detail else ''}")
    return lines


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)

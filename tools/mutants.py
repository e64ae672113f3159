"""Change first-party policies and stages mechanically, one place at a time, and have the conformance kit look at each.

    python tools/mutants.py RESULTS.jsonl [--count 240] [--seed 1] [--minutes 60] [--only SUBSTRING]
    python tools/mutants.py RESULTS.jsonl --summary

A mutant is a copy of a pack's sources with one change: an operator, a constant, an index, the order of two statements, a barrier
left out, a declaration. Checks of the kit run on a stage that the changed file belongs to, with the parameters that the pack's
test module names. Results are kept a line each, so that a run goes on where the last one ended. A mutant that no compiler takes
is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKS: Final = ("quantize", "lorenzo", "bitpack", "transforms", "lc")
_SECONDS: Final = 900
#: the checks of the quick level that are run: those that could tell; the sanitizers', where nothing before them does
_CHECKS: Final = (
    *("declaration", "expected groups", "types", "inverse", "state", "role", "cost and room", "identity", "geometries"),
    *("resolved", "shapes", "partial spans", "empty and tiny", "damage", "memory"),
)

#: what a change is called, what it looks for in a line of code, and what it puts there
_SWAPS: Final = (
    ("operator", r"(?<![+\-*/&|<>=!e(,\[ ]) \+ (?![+=])", " - "),
    ("operator", r"(?<=[\w)\]]) - (?![\-=>])", " + "),
    ("operator", r" << (?!=)", " >> "),
    ("operator", r" >> (?!=)", " << "),
    ("operator", r" & (?![&=])", " | "),
    ("operator", r"(?<!\|) \| (?![|=]|None)", " & "),
    ("operator", r" \^ (?!=)", " | "),
    ("operator", r" <= ", " < "),
    ("operator", r" < (?![<=])", " <= "),
    ("operator", r" == ", " != "),
    ("operator", r" != ", " == "),
    ("operator", r" && ", " || "),
    ("operator", r" \* (?!=)", " + "),
    ("constant", r"(?<![\w.\"\[<])([2-9]|1[0-9]|3[0-9]|6[0-9])(?![\w.])", "+1"),
    ("constant", r"(?<![\w.\"\[<])1(?![\w.])", "2"),
    ("constant", r"(?<![\w.\"\[<])0(?![\w.x])", "1"),
    ("constant", r"\bTrue\b", "False"),
    ("index", r"\[([a-z_0-9]\w*)\]", r"[\1 + 1]"),
    ("index", r"\[(\w+) - 1\]", r"[\1]"),
    ("index", r"\bg\.rank\(\)", "(g.rank() + 1)"),
    ("barrier", r"\bg\.(warp_)?sync\(\);", ";"),
    ("barrier", r"\b__sync(warp|threads)\(\);", ";"),
)
#: what of a stage's class counts as its declaration or its NumPy form
_METHODS: Final = re.compile(
    r"fusion_spec|fused_op|inverse_fus\w+|fused_\w+|prime_\w+|max_chunk_words|cost|spare_meta_bits|output_types|forward|inverse"
)


@dataclass(frozen=True)
class Mutant:
    """One change: line `line` of `file` becomes `new`."""

    pack: str
    file: str
    line: int
    kind: str
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.kind}: {self.old.strip()} -> {self.new.strip()}"


def mutants() -> list[Mutant]:
    """Return every change that there is."""
    found: list[Mutant] = []
    for pack in PACKS:
        source = ROOT / "plugins" / pack / "src"
        for path in sorted([*source.rglob("*.cuh"), *source.rglob("*.py")]):
            if path.name == "__init__.py":
                continue
            lines = path.read_text(encoding="utf-8").splitlines()
            usable = _code_of_header(lines) if path.suffix == ".cuh" else _declarations(path)
            name = str(path.relative_to(source))
            for at in usable:
                found += [Mutant(pack, name, at, kind, lines[at - 1], new) for kind, new in _changes(lines[at - 1])]
                if path.suffix == ".cuh" and at + 1 in usable and _depends(lines[at - 1], lines[at]):
                    found.append(Mutant(pack, name, at, "order", lines[at - 1], f"{lines[at]}\n{lines[at - 1]}"))
    return found


def _depends(first: str, second: str) -> bool:
    """Whether the order of two statements matters, as far as can be seen: one names what the other assigns."""
    if not (_statement(first) and _statement(second)):
        return False
    names = [re.sub(r"[\[(.].*", "", line.split("=")[0].rstrip(" +-*/|&^<>")).split()[-1] for line in (first, second)]
    return bool(re.search(rf"\b{names[0]}\b", second) or re.search(rf"\b{names[1]}\b", first))


def _statement(line: str) -> bool:
    return bool(re.fullmatch(r"\s+(?!return|const|typedef|static|using)[\w\[\]().:<> ]+ ?[-+|^&<>]*= .*;", line))


def _code_of_header(lines: Sequence[str]) -> list[int]:
    skip = re.compile(r"\s*(//|#|namespace|template|struct|typedef|using|}|static_assert)|^\s*$")
    bodies = [i for i, line in enumerate(lines, 1) if not skip.match(line)]
    inline = [i for i, line in enumerate(lines, 1) if re.match(r"\s*template.*\{.*\}", line)]
    return sorted({*bodies, *inline})


def _declarations(path: Path) -> list[int]:
    """Return the lines of code of what a stage declares and of its NumPy form; messages and docstrings are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines: set[int] = set()
    for cls in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        for node in cls.body:
            if isinstance(node, ast.AnnAssign) and "ClassVar[bool]" in ast.unparse(node.annotation):
                lines.add(node.lineno)
            if isinstance(node, ast.FunctionDef) and _METHODS.fullmatch(node.name):
                for part in node.body:
                    if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)):
                        lines |= set(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    for raised in (n for n in ast.walk(tree) if isinstance(n, ast.Raise)):
        lines -= set(range(raised.lineno, (raised.end_lineno or raised.lineno) + 1))
    return sorted(lines)


def _changes(line: str) -> Iterator[tuple[str, str]]:
    code = line.split("//")[0]
    head = re.match(r"\s*template\s*<.*?>\s*__device__.*?\)\s*\{", code)
    begin = head.end() if head else 0
    for kind, pattern, put in _SWAPS:
        for match in re.finditer(pattern, code):
            if match.start() < begin or (kind == "index" and ("ClassVar" in code or "NDArray" in code)):
                continue
            text = str(int(match[0]) + 1) if put == "+1" else match.expand(put)
            yield kind, line[: match.start()] + text + line[match.end() :]


def chosen(count: int, seed: int) -> list[Mutant]:
    """Return a sample, in random order, in which every kind and every file has its share."""
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants():
        groups.setdefault((mutant.kind, mutant.file), []).append(mutant)
    for group in groups.values():
        rng.shuffle(group)
    found: list[Mutant] = []
    while len(found) < count and any(groups.values()):
        keys = [k for k, group in groups.items() if group]
        rng.shuffle(keys)
        found += [groups[k].pop() for k in keys]
    barriers = [m for m in found if m.kind == "barrier"]
    return barriers + [m for m in found if m.kind != "barrier"][: count - len(barriers)]


def stages_of(mutant: Mutant, most: int) -> list[str]:
    """Return stages that a file belongs to, at most so many: those of its module first, then those whose policies include it."""
    from briquette import discovery
    from briquette.sources import resolve_headers
    from briquette.target import KernelSource

    registry, found = discovery.registry(), []
    for name in registry.stages():
        cls = registry.stage_class(name)
        if registry.stage_origin(cls).distribution != f"briquette-{mutant.pack}":
            continue
        modules = {str(Path(*c.__module__.split("."))) + ".py" for c in cls.__mro__}
        op = cls.from_parameters({}).fused_op()
        headers = resolve_headers(KernelSource("x", f"#include <{op.include_header}>\n", ())).texts if op else {}
        direct = mutant.file in (op.include_header if op else "", str(Path(*cls.__module__.split("."))) + ".py")
        if mutant.file in headers or mutant.file in modules:
            found.append((not direct, name))
    return [name for _, name in sorted(found)][:most]


#: the kit as the pack's own test module asks for it, with what that says of parameters and inputs
_CHILD: Final = """
import importlib.util, json, sys
from briquette_conformance import PackConformance, base, running
asked = json.loads(sys.argv[1])
spec = importlib.util.spec_from_file_location("tests_of_the_pack", asked["tests"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
cls = next(c for c in vars(module).values() if isinstance(c, type) and issubclass(c, PackConformance) and c.pack)
options = base.Options(asked["level"], cls().inputs, cls.parameters, cls.unsupported, cls.frozen)
print(running.run(cls.pack, options, only=asked["only"], stages=asked["stages"], fail_fast=True).dumps())
"""


def look(mutant: Mutant, stages: Sequence[str], level: str) -> dict[str, Any]:
    """Run the kit on a mutant; return what it said."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder, "src")
        shutil.copytree(ROOT / "plugins" / mutant.pack / "src", copy, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        path = copy / mutant.file
        lines = path.read_text(encoding="utf-8").splitlines()
        skip = 2 if mutant.kind == "order" else 1
        lines[mutant.line - 1 : mutant.line - 1 + skip] = [mutant.new]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        checks = (*_CHECKS, "races") if mutant.kind in ("barrier", "order") else _CHECKS
        tests = ROOT / "plugins" / mutant.pack / "tests" / "test_conformance.py"
        asked = {"tests": str(tests), "level": level, "only": checks, "stages": stages}
        command = [sys.executable, "-c", _CHILD, json.dumps(asked)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        try:
            done = subprocess.run(
                command, env=environment, cwd=folder, text=True, capture_output=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "caught", "check": "no end", "said": f"no end within {_SECONDS} s"}
    seconds = round(time.monotonic() - begin, 1)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"outcome": "caught", "check": "crash", "said": f"status {done.returncode}: {last[:200]}", "seconds": seconds}
    failed = [f for f in report["findings"] if f["status"] == "failed"]
    if not failed:
        return {"outcome": "survived", "seconds": seconds}
    first = failed[0]
    stillborn = (
        first["check"] in ("identity", "compiles") and "error:" in first["detail"] and "static assertion" not in first["detail"]
    )
    stillborn |= first["check"] == "loads" and "SyntaxError" in first["detail"]
    outcome = "stillborn" if stillborn else "caught"
    return {"outcome": outcome, "check": first["check"], "said": first["detail"][:300], "seconds": seconds}


def _place(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["file"], row["old"].strip(), row["new"].strip()


@lru_cache(maxsize=1)
def equivalent() -> dict[tuple[str, str, str], str]:
    """Return the mutants known to behave as the original does, with the reason."""
    from briquette import _toml

    text = Path(__file__).with_name("equivalent_mutants.toml").read_text(encoding="utf-8")
    return {_place(each): each["why"] for each in _toml.loads(text)["mutant"]}


def summary(path: Path) -> None:
    """Print what a run found."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    live = [r for r in rows if r["outcome"] != "stillborn"]
    caught = [r for r in live if r["outcome"] == "caught"]
    same = [r for r in live if r["outcome"] == "survived" and _place(r) in equivalent()]
    print(f"{len(rows)} mutants, {len(rows) - len(live)} do not compile, {len(same)} behave as the original; ", end="")
    left = len(live) - len(same)
    print(f"of the other {left}, {len(caught)} caught ({100 * len(caught) / max(left, 1):.1f} %)")
    for kind, count in Counter(r["kind"] for r in live).most_common():
        print(f"  {kind}: {sum(r['kind'] == kind for r in caught)} of {count}")
    for check, count in Counter(r["check"] for r in caught).most_common():
        print(f"  by {check}: {count}")
    for r in live:
        if r["outcome"] == "survived":
            why = equivalent().get(_place(r))
            name = Mutant(**{k: r[k] for k in Mutant.__dataclass_fields__}).name
            print(f"the same: {name}: {why}" if why else f"survived: {name}")


def main() -> int:
    """Make mutants and have the kit look at them; exit status 1 where less than 95 % of those that differ were caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stages", type=int, default=1, help="how many stages of a file are looked at")
    parser.add_argument("--level", choices=("quick", "full"), default="quick", help="how thoroughly the kit looks")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--part", default="0/1", metavar="K/N", help="every N-th mutant from the K-th on, for N runs side by side"
    )
    parser.add_argument("--only", default="", help="a part of the file's name")
    parser.add_argument("--survivors", action="store_true", help="look again at those that survived")
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    if not given.summary:
        run(given)
    summary(given.results)
    rows = [json.loads(line) for line in given.results.read_text(encoding="utf-8").splitlines()]
    live = [r["outcome"] == "caught" for r in rows if r["outcome"] != "stillborn" and _place(r) not in equivalent()]
    return 0 if live and sum(live) >= 0.95 * len(live) else 1


def run(given: argparse.Namespace) -> None:
    """Go on where the results end."""
    held = given.results.read_text(encoding="utf-8").splitlines() if given.results.exists() else []
    rows = [json.loads(line) for line in held]
    if given.survivors:
        rows = [r for r in rows if r["outcome"] != "survived"]
        given.results.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    done = {(r["file"], r["line"], r["new"]) for r in rows}
    end = time.monotonic() + 60 * given.minutes
    part, parts = map(int, given.part.split("/"))
    for number, mutant in enumerate(chosen(given.count, given.seed)):
        if number % parts != part:
            continue
        if (mutant.file, mutant.line, mutant.new) in done or given.only not in mutant.file:
            continue
        if time.monotonic() > end:
            break
        stages = stages_of(mutant, given.stages)
        if not stages:
            continue
        found = {**asdict(mutant), "stages": stages, **look(mutant, stages, given.level)}
        with given.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{found['outcome']:9} {found.get('check', ''):16} {found.get('seconds', 0):6} s  {mutant.name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Compile every policy of every installed pack for GPUs, and print the registers, spills and memory of each.

    python tools/nvrtc_report.py [--arch sm_90 ...] [--only STAGE ...] [--variants FILE] [--json FILE]

Needs NVRTC (``requirements-nvrtc.txt``), no GPU and no driver. A policy is compiled alone, at each geometry a GPU uses, in both
directions, for each type it takes. Exit status: 0 where all is well, 1 where something does not compile, spills although a
lane's array is small, or cannot be looked at, 2 for wrong usage, 3 without NVRTC.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from briquette import discovery, sources
from briquette.errors import BriquetteError
from briquette_conformance.nvrtc import FLAGS, CompileFailed, Nvrtc, NvrtcMissing, Usage
from briquette_warp.probe import LaneGeometry, Probe, probe_source, typical
from briquette_warp.survey import Policy, survey

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
DIRECTIONS = ("forward", "inverse")
_ERROR = re.compile(r"^(\S+\.cuh)\(\d+\): (?:catastrophic )?error", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """One policy at one geometry on one architecture: what its two kernels take, or what went wrong."""

    policy: Policy
    geometry: LaneGeometry
    arch: str
    usage: dict[str, Usage]
    failure: str = ""

    @property
    def title(self) -> str:
        return f"pack {self.policy.pack}: {self.policy.title} of {self.policy.dtype} at {self.geometry} for {self.arch}"


def compile_one(nvrtc: Nvrtc, policy: Policy, geometry: LaneGeometry, arch: str) -> Result:
    """Compile one probe, and judge what comes out."""
    source = probe_source(policy.name, [Probe(policy.forward, policy.inverse, geometry)])
    try:
        headers = sources.resolve_headers(source).texts
        cubin, found = nvrtc.compile(source.name, source.text, headers, arch)
    except (BriquetteError, CompileFailed) as exc:
        return Result(policy, geometry, arch, {}, _blame(str(exc)))
    usage = {direction: found[f"p0_{direction}"] for direction in DIRECTIONS if f"p0_{direction}" in found}
    failure = ""
    if not cubin.startswith(b"\x7fELF") or len(usage) < len(DIRECTIONS):
        failure = f"NVRTC reports {', '.join(usage) or 'no kernel'} instead of {' and '.join(DIRECTIONS)}"
    elif geometry.small and any(each.spills for each in usage.values()):
        failure = "it spills registers although a lane holds few elements"
    return Result(policy, geometry, arch, usage, failure)


def _blame(log: str) -> str:
    """Put the owner of the header with the first error in front of the log."""
    match = _ERROR.search(log)
    return f"error in <{match[1]}> of {sources.owner_of(match[1])}:\n{log}" if match else log


def tabulate(results: Sequence[Result], archs: Sequence[str]) -> list[list[str]]:
    """Return rows of cells, headings first; numbers of the architectures stand side by side."""
    head = ["stage", "type", "lanes x elements", "forward registers", "inverse registers", "stack", "spilled", "shared", "pack"]
    rows = [head]
    for at in range(0, len(results), len(archs)):
        group = results[at : at + len(archs)]
        one = group[0]

        def cell(direction: str, name: str, group: Sequence[Result] = group) -> str:
            return "/".join(str(getattr(r.usage[direction], name)) if direction in r.usage else "-" for r in group)

        def worst(*names: str, group: Sequence[Result] = group) -> str:
            return str(max((sum(getattr(u, n) for n in names) for r in group for u in r.usage.values()), default="-"))

        rows.append(
            [
                *(one.policy.title, one.policy.dtype, str(one.geometry)),
                *(cell(direction, "registers") for direction in DIRECTIONS),
                *(worst("stack"), worst("spill_stores", "spill_loads"), worst("shared"), one.policy.pack),
            ]
        )
    return rows


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def as_json(nvrtc: Nvrtc, results: Sequence[Result], problems: Sequence[str], left_out: Sequence[str]) -> dict[str, Any]:
    return {
        "nvrtc": nvrtc.version,
        "flags": list(FLAGS),
        "left_out": list(left_out),
        "problems": list(problems),
        "results": [
            {
                "pack": r.policy.pack,
                "stage": r.policy.name,
                "parameters": r.policy.forward.stage.parameters(),
                "dtype": r.policy.dtype,
                "codes": r.policy.forward.main_out.dtype,
                "lanes": r.geometry.lanes,
                "elements": r.geometry.elements,
                "arch": r.arch,
                "failure": r.failure,
                "usage": {direction: asdict(usage) for direction, usage in r.usage.items()},
            }
            for r in results
        ],
    }


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compile every policy of every installed pack with NVRTC, without a GPU.")
    parser.add_argument("--arch", action="append", help=f"architecture, may be repeated (default: {', '.join(ARCHITECTURES)})")
    parser.add_argument("--variants", type=Path, help="JSON: stage name to a list of parameter sets, beyond defaults and presets")
    parser.add_argument("--only", action="append", metavar="STAGE", help="look at this stage only, may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilations at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to FILE as well")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    archs = tuple(dict.fromkeys(options.arch or ARCHITECTURES))
    try:
        nvrtc = Nvrtc()
    except NvrtcMissing as exc:
        print(exc, file=sys.stderr)
        return 3
    variants = json.loads(options.variants.read_text(encoding="utf-8")) if options.variants else {}
    found = survey(discovery.registry(), variants)
    problems = list(found.problems)
    policies = [p for p in found.policies if not options.only or p.name in options.only]
    known = {p.name for p in policies}
    problems += [f"no installed pack has a policy for {name!r}" for name in options.only or () if name not in known]
    jobs = [(p, g, a) for p in policies for g in typical(p.forward) for a in archs]
    problems += [f"pack {p.pack}: {p.title} of {p.dtype} runs at no geometry" for p in policies if not typical(p.forward)]
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        results = list(pool.map(lambda job: compile_one(nvrtc, *job), jobs))
    failures = [f"{r.title}: {r.failure}" for r in results if r.failure]
    if options.json:
        options.json.write_text(json.dumps(as_json(nvrtc, results, problems, found.left_out), indent=1), encoding="utf-8")
    if results:
        print(f"{nvrtc.version}, {' '.join(FLAGS)}, {'/'.join(archs)}; stack and spills: most bytes a thread\n")
        print_table(tabulate(results, archs))
        for line in ("", *(f"left out: {line}" for line in found.left_out)):
            print(line)
        print(f"{len(results)} compilations of {len(policies)} policies, {len(failures) + len(problems)} failures")
    for line in (*problems, *failures):
        print(line, file=sys.stderr)
    return 1 if failures or problems or not results else 0


if __name__ == "__main__":
    sys.exit(main())

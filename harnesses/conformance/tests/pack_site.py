"""Example packs, as they are or with something wrong planted in them, laid where a process of their own finds them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SOURCES = {
    path.parent.name: path.parent
    for folder in (ROOT / "tests" / "outside" / "packs", HERE / "packs")
    for path in folder.glob("*/pyproject.toml")
}

#: the packs that register stages, which is what the kit looks at
WITH_STAGES = tuple(
    name
    for name, source in SOURCES.items()
    if tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"].get("briquette.stages")
)

#: file below ``src``, or the name pyproject.toml; what stands there once; what is put in its place
Edit = tuple[str, str, str]


def lay(site: Path, pack: str, edits: Iterable[Edit] = ()) -> None:
    """Install a pack into a folder as a wheel would, with edits to its sources; each must hit exactly one place."""
    source = SOURCES[pack]
    shutil.copytree(source / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    texts = {"pyproject.toml": (source / "pyproject.toml").read_text(encoding="utf-8")}
    for name, old, new in edits:
        text = texts[name] if name in texts else (site / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times"
        if name in texts:
            texts[name] = text.replace(old, new)
        else:
            (site / name).write_text(text.replace(old, new), encoding="utf-8")
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    info = site / f"{pack.replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {pack}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    groups = project["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def check(site: Path, pack: str, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run ``briquette check`` in a process of its own; return exit status, the report, and what stood on standard error."""
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "briquette_cli.main", "check", pack, "--json", *options],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=site,
        text=True,
        capture_output=True,
        check=False,
        timeout=600,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {}, done.stderr


def failures(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return subject, check and message of what failed."""
    return [(f["subject"], f["check"], f["detail"]) for f in report.get("findings", []) if f["status"] == "failed"]

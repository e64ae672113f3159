"""``python -m briquette_conformance.child JOBS``: what is done in a process that has never compressed anything.

Archives come as files, answers go out as JSON, a line each. A crash, or a wait without end, is the parent's to tell of.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

import briquette as bq
from briquette.archive import Archive
from briquette.errors import BriquetteError
from briquette_conformance.resealing import reseal

_SECONDS: Final = 300


def ask(
    tasks: Sequence[Mapping[str, Any]], files: Mapping[str, bytes], changed: Mapping[str, str | None] | None = None
) -> list[Any]:
    """Have a child do tasks over files; return its answers, and for what it did not get to the word of how it ended.

    Parameters
    ----------
    tasks : sequence of mappings
        ``{"do": ..., "file": ..., ...}``; see the functions `_decode`, `_compress`, `_damage`.
    files : mapping of name to contents
    changed : mapping of environment variables, optional
        None removes one.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **(changed or {})}
    with tempfile.TemporaryDirectory(prefix="briquette-") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        Path(folder, "tasks.json").write_text(json.dumps(list(tasks)), encoding="utf-8")
        ended = ""
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__, "tasks.json"],
                cwd=folder,
                env={k: v for k, v in environment.items() if v is not None},
                text=True,
                errors="replace",
                capture_output=True,
                check=False,
                timeout=_SECONDS,
            )
            out, status = done.stdout, done.returncode
            if status:
                said = done.stderr.strip().splitlines()
                ended = f"the process ended with status {status}{f': {said[-1]}' if said else ''}"
        except subprocess.TimeoutExpired as exc:
            out = exc.stdout.decode() if isinstance(exc.stdout, bytes) else exc.stdout or ""
            ended = f"no answer within {_SECONDS} s"
    answers: list[Any] = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return answers + [{"error": ended or "no answer"}] * (len(tasks) - len(answers))


def _decode(task: Mapping[str, Any]) -> dict[str, Any]:
    blob = Path(task["file"]).read_bytes()
    found = bq.decompress(blob, target=task["target"])
    return {"sha256": hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()}


def _compress(task: Mapping[str, Any]) -> dict[str, Any]:
    x = np.load(task["file"])
    bound = {} if task["eb"] is None else {"eb": task["eb"], "mode": task["mode"]}
    made = bq.compress_run(x, pipeline=bq.Pipeline.from_toml(task["toml"]), target=task["target"], **bound)
    blob = bytes(made.archive)
    back = hashlib.sha256(np.ascontiguousarray(bq.decompress(blob, target=task["target"])).tobytes()).hexdigest()
    return {"sha256": hashlib.sha256(blob).hexdigest(), "back": back, "target": made.plan.target}


def _damage(task: Mapping[str, Any]) -> dict[str, Any]:
    """Decode mutated archives whose checksums are right: each must be refused as damaged, or decode, alike on all targets."""
    blob = Path(task["file"]).read_bytes()
    rng = Random(task["seed"])
    refused = 0
    for number in range(task["mutations"]):
        bad, where = mutated(rng, blob)
        outcomes = {}
        for target in task["targets"]:
            print(f"# mutation {number} on {target}: {where}", file=sys.stderr, flush=True)
            try:
                found = bq.decompress(bad, target=target)
                outcomes[target] = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
            except BriquetteError as exc:
                outcomes[target] = f"refused: {type(exc).__name__}"
            except MemoryError:
                outcomes[target] = "refused: MemoryError"
            except Exception as exc:
                return {"error": f"{where}, on {target}: {type(exc).__name__}: {exc}; an inverse raises ArchiveError for damage"}
        kinds = {v if not v.startswith("refused") else "refused" for v in outcomes.values()}
        if len(kinds) > 1:
            told = "; ".join(f"{t}: {v if v.startswith('refused') else 'decodes'}" for t, v in outcomes.items())
            return {"error": f"{where}: targets disagree: {told}"}
        refused += kinds == {"refused"}
    return {"refused": refused}


def mutated(rng: Random, blob: bytes) -> tuple[bytes, str]:
    """Return an archive with one to three changes to its segments, checksums made right, and where the last change is."""
    out = bytearray(blob)
    segments = [s.at for s in Archive.open(blob).segments if s.at.end > s.at.payload_at]
    where = "nothing to damage"
    for _ in range(rng.randint(1, 3) if segments else 0):
        d = rng.choice(segments)
        begin = d.payload_at if rng.random() < 0.85 else d.offset
        end = min(d.end, begin + 256) if rng.random() < 0.5 else d.end
        at = rng.randrange(begin, end)
        new = rng.choice([out[at] ^ 1 << rng.randrange(8), 0, 255, 31, 33, 64, 65, rng.randrange(256)])
        where = f"byte {at - d.payload_at} of a segment's payload from {out[at]} to {new}"
        out[at] = new
    return reseal(out), where


_TASKS: Final = {"decode": _decode, "compress": _compress, "damage": _damage}


def main(path: str) -> None:
    """Do the tasks of a file; print an answer for each."""
    for task in json.loads(Path(path).read_text(encoding="utf-8")):
        try:
            answer = _TASKS[task["do"]](task)
        except Exception as exc:  # the parent tells of it
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

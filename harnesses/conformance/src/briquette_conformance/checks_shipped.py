"""What a pack ships: headers in its wheel, archives of earlier releases, neighbours of other packs."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np

import briquette as bq
from briquette.errors import BriquetteError

from .base import Context, Proof, check
from .data import first_difference, same
from .report import Fault, NotHere


def _headers(ctx: Context) -> dict[str, str]:
    """Return the headers of the pack's policies, with the stage that names each."""
    found = {}
    for subject in ctx.subjects:
        for op in (subject.stage.fused_op(), subject.stage.inverse_fused_op()):
            if op is not None:
                found[op.include_header] = subject.title
    return found


@check("wheel", per_stage=False, full_only=True)
def wheel(ctx: Context) -> Iterator[Proof]:
    """The wheel holds every header that a policy names: an editable install sees what a wheel may lose."""
    wanted = _headers(ctx)
    if not wanted:
        raise NotHere("no stage of the pack has a policy")
    source = _source(ctx.pack)
    names = _built(source) if source is not None else {str(f) for f in importlib.metadata.files(ctx.pack) or ()}
    lost = [name for name in wanted if name not in names]
    if lost:
        raise Fault(
            f"the wheel lacks {', '.join(f'{n} (of stage {wanted[n]})' for n in lost)}; add to pyproject.toml: "
            f'[tool.setuptools.package-data] {lost[0].split("/")[0]} = ["cuda/*.cuh"]'
        )
    yield Proof(detail=f"{len(wanted)} headers in {'a wheel built from ' + source.name if source else 'the installed files'}")


def _source(pack: str) -> Path | None:
    """Return the folder that an editable install was made from; None where the installed files are a wheel's."""
    try:
        text = importlib.metadata.distribution(pack).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    told = json.loads(text) if text else {}
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(told["url"]).path))


def _built(source: Path) -> set[str]:
    with tempfile.TemporaryDirectory(prefix="briquette-") as folder:
        copy = Path(folder, "source")  # so that no build folder is left in the source
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", ".*"))
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, str(copy)]
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=600)
        if done.returncode:
            raise Fault(f"no wheel can be built from {source.name}: {done.stderr.strip()[-400:]}")
        (path,) = Path(folder).glob("*.whl")
        return set(zipfile.ZipFile(path).namelist())


@check("frozen archives", per_stage=False)
def frozen(ctx: Context) -> Iterator[Proof]:
    """Archives that earlier releases wrote decode to what they held, on every target."""
    folder = ctx.options.frozen
    if folder is None:
        raise NotHere("no folder of archives that the pack's releases wrote is named (frozen= of its test class, or --frozen)")
    files = sorted(folder.glob("*.brq"))
    if not files:
        raise Fault(f"{folder} holds no archive (*.brq)")
    targets = ["numpy", *(p.name for p in ctx.places.kernels if p.name != "emulated")]
    held: set[str] = set()
    for path in files:
        if not path.with_suffix(".npy").exists():
            raise Fault(f"{path.name} has no {path.stem}.npy beside it, the array that it decodes to")
        expected, blob = np.load(path.with_suffix(".npy")), path.read_bytes()
        try:
            held |= {each["stage"] for each in bq.info(blob)["stages"]}
        except BriquetteError as exc:
            raise Fault(f"{path.name}: {exc}") from exc
        for target in targets:
            try:
                found = bq.decompress(blob, target=target)
            except BriquetteError as exc:
                raise Fault(f"{path.name} on {target}: {exc}") from exc
            if found.shape != expected.shape or not same(found, expected):
                raise Fault(f"{path.name} on {target} decodes to other values: {first_difference(expected, found)}")
    mine = sorted({s.stage.name for s in ctx.subjects if f"{ctx.pack}:{s.stage.name}" in held})
    if not mine:
        looked_at = ", ".join(dict.fromkeys(s.stage.name for s in ctx.subjects))
        raise Fault(f"none of the {len(files)} archives in {folder} holds {looked_at}; --freeze writes those that are not there")
    yield Proof(tuple(targets), f"{len(files)} archives, of {', '.join(mine)}")


@check("two packs together", per_stage=False)
def together(ctx: Context) -> Iterator[Proof]:
    """Policies of the pack and of others are compiled into one kernel."""
    if not ctx.places.kernels:
        raise NotHere("no target here compiles kernels")
    place, met, chains = ctx.places.kernels[0], set(), 0
    for subject in ctx.subjects:
        for case in subject.cases:
            spaces = {op.namespace for s in case.stages if (op := s.fused_op()) is not None}
            run = case.on(place, "auto")
            if len(spaces) > 1 and run.plan.forward.groups == (case.graph.order,):
                run.compile()
                met |= spaces
                chains += 1
    if not chains:
        raise NotHere("no installed pack has stages that its stages fuse with")
    yield Proof((place.name,), f"{chains} chains in one kernel, of {', '.join(sorted(met))}")

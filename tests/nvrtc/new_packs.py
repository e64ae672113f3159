"""``python new_packs.py FOLDER ARCHITECTURE...``: compile the presets of packs that `briquette new-pack` wrote; prints JSON.

FOLDER holds the packs, each in a folder named like it. Run in the environment that has NVRTC.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import briquette as bq
from briquette import discovery, sources
from briquette._scan import grouped, installed
from briquette.planner import chain_members
from briquette_chunk.chain import ChunkComposition
from briquette_chunk.cuda_program import ChunkCudaProgram
from briquette_warp.chain import Composition
from briquette_warp.cuda_program import CudaProgram

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from briquette_conformance.nvrtc import Nvrtc


def points(folder: Path) -> list[EntryPoint]:
    """Return what the pack in `folder` would register, were it installed."""
    name, module = folder.name, folder.name.replace("-", "_")
    sys.path.insert(0, str(folder / "src"))
    title = "".join(part.capitalize() for part in name.split("-"))
    made = [
        EntryPoint(name, f"{module}.stage:{title}", "briquette.stages"),
        EntryPoint(name, f"{module}:PRESET", "briquette.presets"),
    ]
    for point in made:
        vars(point)["dist"] = SimpleNamespace(name=name, version="0.1.0")
    return made


def main(folder: Path, archs: list[str]) -> None:
    nvrtc, found = Nvrtc(), []
    packs = sorted(path.parent for path in folder.glob("*/pyproject.toml"))
    registry = discovery.Registry([*installed(), *grouped(point for pack in packs for point in points(pack))])
    with discovery.use(registry):
        for pack in packs:
            pipe = bq.Pipeline.from_preset(pack.name)
            for direction in ("forward", "inverse"):
                composed: list[Any] = []
                members: Any = chain_members(pipe.graph, pipe.graph.types("float32"), pipe.graph.order, direction)
                if pack.name not in [member.node for member in members]:
                    continue  # it stays NumPy
                target: Any = SimpleNamespace(compile=composed.append)
                if "chunk-cooperative" in members[-1].op.strategies:
                    ChunkCudaProgram(ChunkComposition(tuple(members), pipe.graph.chunk_for("float32")), direction, target)
                else:
                    CudaProgram(Composition(tuple(members), pipe.graph.chunk_for("float32")), direction, target)
                for arch in archs:
                    headers = sources.resolve_headers(composed[0]).texts
                    _, usage = nvrtc.compile(composed[0].name, composed[0].text, headers, arch)
                    found += [{"pack": pack.name, "arch": arch, "kernel": k, **asdict(u)} for k, u in usage.items()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

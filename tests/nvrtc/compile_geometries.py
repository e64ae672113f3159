"""Compile every CUDA geometry of the presets' chains with NVRTC; JSON of what each kernel takes to standard output.

python tests/nvrtc/compile_geometries.py ARCH PRESET DTYPE [PRESET DTYPE ...]
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, cast

import briquette as bq
from briquette import sources
from briquette.planner import chain_members
from briquette.target import Target
from briquette_conformance.nvrtc import Nvrtc
from briquette_warp.harness import WarpHarness


def main(arch: str, *chains: str) -> None:
    nvrtc = Nvrtc()
    target = cast(Target, SimpleNamespace(name="cuda", dialect="cuda"))
    found: list[dict[str, Any]] = []
    for preset, dtype in zip(chains[::2], chains[1::2], strict=True):
        run = bq.Pipeline.from_preset(preset).executable(dtype, "numpy")
        for direction in ("forward", "inverse"):
            members = chain_members(run.graph, run.plan.types, tuple(run.graph.nodes), direction)
            for geometry in WarpHarness().geometries(members, direction, target, run.plan.chunk):
                headers = sources.resolve_headers(geometry.source).texts
                _, usage = nvrtc.compile(geometry.source.name, geometry.source.text, headers, arch)
                taken = usage[f"briquette_{direction}"]
                found.append(
                    {
                        "chain": f"{preset} {dtype} {direction}",
                        "blocks": dict(geometry.settings)["blocks"],
                        "registers": taken.registers,
                        "spills": taken.spills,
                    }
                )
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

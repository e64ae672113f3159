"""Print as JSON what the whole kernels of chains take: runs in the environment that has NVRTC.

python chain_usage.py ARCH ...
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import briquette as bq
from briquette import discovery, sources
from briquette.planner import chain_members
from briquette_conformance.nvrtc import Nvrtc
from briquette_warp.chain import Composition
from briquette_warp.cuda_program import CudaProgram


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def chains() -> dict[str, tuple[bq.Pipeline, str]]:
    head, selector, planes = stage("linear-quantizer"), stage("adaptive-lorenzo"), stage("adaptive-bitplane")
    return {
        "adaptive float32": (bq.Pipeline.from_preset("adaptive"), "float32"),
        "adaptive float64": (bq.Pipeline.from_preset("adaptive"), "float64"),
        "adaptive int32": (bq.chain(selector, stage("plain-rate")), "int32"),
        "adaptive, planes float32": (bq.chain(head, selector, planes), "float32"),
        "adaptive, zigzag float32": (bq.chain(head, selector, stage("zigzag"), planes), "float32"),
        "tiled float32": (bq.Pipeline.from_preset("tiled"), "float32"),
        "tiled float64": (bq.Pipeline.from_preset("tiled"), "float64"),
        "tiled-outlier float32": (bq.Pipeline.from_preset("tiled-outlier"), "float32"),
        "adaptive, tiles apart float32": (bq.chain(head, selector, stage("plain-rate"), sides=False), "float32"),
    }


def main(archs: list[str]) -> None:
    nvrtc, found = Nvrtc(), []
    for label, (pipe, dtype) in chains().items():
        for direction in ("forward", "inverse"):
            composed: list[Any] = []
            members = chain_members(pipe.graph, pipe.graph.types(dtype), pipe.graph.order, direction)
            parts = Composition(tuple(members), pipe.graph.chunk)
            CudaProgram(parts, direction, SimpleNamespace(compile=composed.append))
            for arch in archs:
                headers = sources.resolve_headers(composed[0]).texts
                _, usage = nvrtc.compile(composed[0].name, composed[0].text, headers, arch)
                found += [{"chain": label, "arch": arch, "kernel": k, **asdict(u)} for k, u in usage.items()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])

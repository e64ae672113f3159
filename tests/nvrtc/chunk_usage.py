"""Print as JSON what the kernels of the chunk-cooperative harness take: runs in the environment that has NVRTC.

python chunk_usage.py ARCH ...
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import briquette as bq
from briquette import discovery, sources
from briquette.declare import FusionAccess
from briquette.errors import UsageError
from briquette.planner import chain_members
from briquette.record import Bound
from briquette_chunk.chain import ChunkComposition
from briquette_chunk.cuda_program import ChunkCudaProgram
from briquette_conformance.nvrtc import Nvrtc


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def coders() -> list[bq.Stage | None]:
    """No coder, and every one that is installed for chunks."""
    registry = discovery.registry()
    made = [registry.stage_class(name) for name in registry.stages()]
    found = [cls() for cls in made if "chunk_bytes" in cls.parameter_names()]
    return [None, *(s for s in found if s.fusion_spec().access is FusionAccess.SEGMENT_CODEC)]


def chains() -> dict[str, tuple[bq.Pipeline, str]]:
    made = {}
    for coder in coders():
        for dtype, word in (("float32", 4), ("float64", 8), ("int16", 2), ("uint8", 1)):
            stages = [stage("chunk-difference"), stage("negabinary"), stage("bit-shuffle", word=word)]
            stages = [stage("linear-quantizer"), *stages] if dtype.startswith("float") else stages
            made[f"{coder.name if coder else 'planes'} {dtype}"] = (bq.chain(*stages, *([coder] if coder else [])), dtype)
    registry = discovery.registry()
    for preset in registry.presets():
        for dtype, mode in (("float32", "rel"), ("float64", "rel"), ("float32", "pwrel")):
            try:
                pipe = bq.Pipeline.from_preset(preset).variant(dtype, Bound(1e-3, mode))
            except UsageError:
                continue
            stages = list(pipe.graph.nodes.values())
            without = stages[0].needs_bound and not stages[0].fused_aux_outputs()  # the other heads are in chains above
            if without and any("chunk_bytes" in s.parameter_names() for s in stages):
                made[f"{preset} {dtype} {mode}"] = (pipe, dtype)
    return made


def main(archs: list[str]) -> None:
    nvrtc, found = Nvrtc(), []
    for label, (pipe, dtype) in chains().items():
        for direction in ("forward", "inverse"):
            composed: list[Any] = []
            members = chain_members(pipe.graph, pipe.graph.types(dtype), pipe.graph.order, direction)
            parts = ChunkComposition(tuple(members), pipe.graph.chunk_for(dtype))
            ChunkCudaProgram(parts, direction, SimpleNamespace(compile=composed.append))
            for arch in archs:
                headers = sources.resolve_headers(composed[0]).texts
                _, usage = nvrtc.compile(composed[0].name, composed[0].text, headers, arch)
                found += [{"chain": label, "arch": arch, "kernel": k, **asdict(u)} for k, u in usage.items()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])

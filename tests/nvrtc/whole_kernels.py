"""``python whole_kernels.py ARCHITECTURE...``: compile the complete kernels of chains in the element form; prints JSON.

Run with the pack of tests/outside/packs/acme-warp on the path, in the environment that has NVRTC.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from acme_warp.difference import WarpDifference
from acme_warp.lift import WarpLift
from acme_warp.planes import WarpPlanes

import briquette as bq
from briquette.planner import chain_members
from briquette.sources import resolve_headers
from briquette_bitpack.plainrate import PlainRate
from briquette_conformance.nvrtc import Nvrtc
from briquette_lorenzo.lorenzo1d import Lorenzo1D
from briquette_quantize.linear import LinearQuantizer
from briquette_warp import WarpHarness
from briquette_warp.chain import Composition
from briquette_warp.compose import cuda_source
from briquette_warp.cuda_program import CHUNK, resident_blocks

CHAINS = {
    "all in the element form": (LinearQuantizer(), WarpDifference(), WarpLift(), WarpPlanes()),
    "the largest blocks": (LinearQuantizer(), WarpDifference(32), WarpPlanes(32)),
    "a coder in the other form": (LinearQuantizer(), WarpDifference(4), PlainRate()),
    "a predictor in the other form": (LinearQuantizer(), Lorenzo1D(), WarpPlanes(1)),
    "ends at codes": (LinearQuantizer(), WarpDifference()),
    "alone": (WarpPlanes(2),),
}


def main() -> None:
    library, target = Nvrtc(), SimpleNamespace(name="cuda", dialect="cuda")
    found = []
    for title, stages in CHAINS.items():
        plan = bq.chain(*stages).plan("float32" if len(stages) > 1 else "int32", "numpy")
        for direction in ("forward", "inverse"):
            members: Any = chain_members(plan.graph, plan.types, plan.graph.order, direction)
            refused = WarpHarness().refuse(members, direction, target, CHUNK)  # type: ignore[arg-type]
            assert refused is None, refused
            parts = Composition(tuple(members), CHUNK)
            source = cuda_source(parts, direction, resident_blocks(parts, direction))
            for arch in sys.argv[1:]:
                _, kernels = library.compile(source.name, source.text, resolve_headers(source).texts, arch)
                found += [{"chain": title, "arch": arch, "kernel": name, **asdict(usage)} for name, usage in kernels.items()]
    print(json.dumps(found))


if __name__ == "__main__":
    main()

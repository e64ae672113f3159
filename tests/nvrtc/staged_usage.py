"""Print as JSON what the kernels that stages bring themselves take: runs in the environment that has NVRTC.

python staged_usage.py ARCH ...
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from briquette import discovery, sources
from briquette.errors import BriquetteError
from briquette.ports import STREAM_DTYPES, PortType
from briquette_conformance.nvrtc import Nvrtc

DIRECTIONS: tuple[Literal["forward"], Literal["inverse"]] = ("forward", "inverse")


def main(archs: list[str]) -> None:
    nvrtc, found = Nvrtc(), []
    registry = discovery.registry()
    for name in registry.stages():
        cls = registry.stage_class(name)
        try:
            stage = cls()
        except (BriquetteError, TypeError):  # parameters without defaults
            continue
        for direction in DIRECTIONS:
            for dtype in sorted(STREAM_DTYPES):
                inputs = {port: PortType(dtype) for port in stage.inputs}
                try:
                    types = {**inputs, **stage.output_types(inputs)}
                except BriquetteError:  # not one of its types
                    continue
                kernel = stage.staged_kernel(direction, "cuda", types)
                if kernel is None:
                    continue
                composed: list[Any] = []
                kernel(name, types, SimpleNamespace(compile=composed.append, dialect="cuda"), 8192)  # type: ignore[arg-type]
                for source in composed:
                    headers = sources.resolve_headers(source).texts
                    for arch in archs:
                        _, usage = nvrtc.compile(source.name, source.text, headers, arch)
                        about = {"stage": name, "dtype": dtype, "direction": direction, "arch": arch}
                        found += [{**about, "kernel": k, **asdict(u)} for k, u in usage.items()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])

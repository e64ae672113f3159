"""Random chains of whatever is installed for this harness, found by role: the reference's bytes in one group each way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from chunk_kit import SIZES, TYPES, check, field

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess
from briquette.errors import BriquetteError
from briquette.ports import PortType
from briquette.stage import Stage

CHAINS = 12


def installed(size: int) -> dict[str, list[Stage]]:
    """The stages that serve this harness without parameters of a kind this test does not know: transforms, and coders."""
    found: dict[str, list[Stage]] = {"transform": [], "coder": []}
    registry = discovery.registry()
    for name in registry.stages():
        try:
            cls = registry.stage_class(name)
            stage = cls.from_parameters({"chunk_bytes": size} if "chunk_bytes" in cls.parameter_names() else {})
            op, spec = stage.fused_op(), stage.fusion_spec()
        except BriquetteError:
            continue
        if op is None or "chunk-cooperative" not in op.strategies or stage.fused_aux_outputs() or stage.needs_bound:
            continue
        if op.geometry.get("head") or len(stage.inputs) != 1:
            continue
        if spec.access is FusionAccess.SEGMENT_CODEC:
            found["coder"].append(stage)
        elif spec.access is FusionAccess.ELEMENTWISE or spec.unit == "bytes":
            found["transform"].append(stage)
    return found


def draw(rng: random.Random) -> tuple[list[Stage], str]:
    """Return a chain with at least one op on chunks, and a type that all of it takes."""
    parts, dtype = installed(rng.choice(SIZES)), rng.choice(TYPES)
    while True:
        chain, kind = [], PortType(dtype)
        for stage in rng.choices(parts["transform"], k=rng.randint(1, 5)) + rng.choices(parts["coder"], k=rng.randint(0, 1)):
            try:
                kind = stage.output_types({stage.inputs[0]: kind})[stage.outputs[0]]
            except BriquetteError:
                continue
            chain.append(stage)
        if any(stage.fusion_spec().unit == "bytes" for stage in chain):
            return chain, dtype


@pytest.mark.parametrize("seed", range(CHAINS))
def test_a_random_chain(toys: Any, host: Any, seed: int) -> None:
    chain, dtype = draw(random.Random(seed))
    print(f"seed {seed}: {dtype}, {chain}")
    pipe = bq.chain(*chain)
    items = pipe.graph.chunk_for(dtype)
    for n in (1, 37, items - 1, items, 2 * items + np.random.default_rng(seed).integers(1, items)):
        check(pipe, field(int(n), dtype), 1, staged=n == 37)

"""Random chains of whatever is installed for this harness, found by role: the reference's bytes in one group each way."""

from __future__ import annotations

import os
import random
import secrets
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
from briquette_chunk.cuda_program import MOST_KEPT

CHAINS = 20


@pytest.fixture(scope="module")
def fresh_seed() -> int:
    """New in every run and printed; BRIQUETTE_TEST_SEED repeats one."""
    return int(os.environ.get("BRIQUETTE_TEST_SEED") or secrets.randbits(32))


def configured(cls: type[Stage], size: int, rng: random.Random) -> Stage:
    """Return the stage for chunks of `size` bytes, its other parameters the defaults or small numbers that it takes."""
    given: dict[str, Any] = {"chunk_bytes": size} if "chunk_bytes" in cls.parameter_names() else {}
    made = cls.from_parameters(given)
    for name in cls.parameter_names():
        if name == "chunk_bytes" or rng.random() < 0.5:
            continue
        try:
            made = cls.from_parameters({**given, name: rng.choice((0, 1, 2, 3, 4, 8, 32))})
        except BriquetteError:
            continue
        given = made.parameters()
    return made


def installed(size: int, rng: random.Random) -> dict[str, list[Stage]]:
    """The stages that serve this harness: heads of chains under an absolute bound, transforms, and coders."""
    found: dict[str, list[Stage]] = {"head": [], "transform": [], "coder": []}
    registry = discovery.registry()
    for name in registry.stages():
        try:
            stage = configured(registry.stage_class(name), size, rng)
            op, spec = stage.fused_op(), stage.fusion_spec()
        except BriquetteError:
            continue
        if op is None or "chunk-cooperative" not in op.strategies or len(stage.inputs) != 1:
            continue
        if op.geometry.get("head"):
            if stage.needs_bound and "abs" in stage.bound_modes:
                found["head"].append(stage)
        elif spec.access is FusionAccess.SEGMENT_CODEC:
            found["coder"].append(stage)
        elif spec.access is FusionAccess.ELEMENTWISE or spec.unit == "bytes":
            found["transform"].append(stage)
    assert all(len(each) > 1 for each in found.values()), found
    return found


def draw(rng: random.Random) -> tuple[list[Stage], str]:
    """Return a chain with at least one op on chunks, and a type that all of it takes."""
    parts, dtype = installed(rng.choice(SIZES), rng), rng.choice(TYPES)
    heads = [*parts["head"], *parts["head"]] if dtype.startswith("float") else []
    while True:
        chain, kind = [], PortType(dtype)
        drawn = rng.choices([None, *heads], k=1) + rng.choices(parts["transform"], k=rng.randint(1, 5))
        for stage in drawn + rng.choices(parts["coder"], k=rng.randint(0, 1)):
            try:
                kind = stage.output_types({stage.inputs[0]: kind})[stage.outputs[0]] if stage else kind
            except BriquetteError:
                continue
            chain += [stage] if stage else []
        if any(stage.fusion_spec().unit == "bytes" for stage in chain):
            return chain, dtype


@pytest.mark.parametrize("number", range(CHAINS))
def test_a_random_chain(toys: Any, host: Any, fresh_seed: int, number: int) -> None:
    run_one(fresh_seed, number, "host")


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(CHAINS))
def test_a_random_chain_on_a_gpu(toys: Any, fresh_seed: int, number: int) -> None:
    run_one(fresh_seed, number, "cuda")


def run_one(fresh_seed: int, number: int, target: str) -> None:
    print(f"BRIQUETTE_TEST_SEED={fresh_seed}, chain {number}")
    rng = random.Random(f"{fresh_seed} {number}")
    chain, dtype = draw(rng)
    while target == "cuda" and any(s.fused_aux_outputs() for s in chain) and bq.chain(*chain).graph.chunk_for(dtype) > MOST_KEPT:
        chain, dtype = draw(rng)  # a block has a bit a lane for what a head keeps aside
    print(f"{dtype}, {chain}")
    pipe = bq.chain(*chain)
    items = pipe.graph.chunk_for(dtype)
    eb = 1e-2 if chain[0].needs_bound else None
    for n in (1, 37, items - 1, items, 2 * items + rng.randrange(1, items)):
        x = field(n, dtype)
        if eb is not None:
            x[n // 2 :: 91] = np.nan
        check(pipe, x, 1, eb, staged=n == 37, target=target)

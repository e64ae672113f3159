"""What a stage takes, and on which targets its policy runs: asked of the stage and the harnesses, without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess
from briquette.errors import BriquetteError
from briquette.planner import chain_members
from briquette.ports import CODE_DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, STREAM_DTYPES, PortType
from briquette.selection import REFERENCE
from briquette.stage import Stage
from briquette.target import Target

#: types in the order people count in
_ORDER: Final = sorted(sorted(STREAM_DTYPES), key=lambda d: (d in FLOAT_DTYPES, d.startswith("u"), PortType(d).itemsize))
_FAMILIES: Final = (("any", STREAM_DTYPES), ("integers", INTEGER_DTYPES), ("codes", CODE_DTYPES), ("floats", FLOAT_DTYPES))


def dtypes_of(stage: Stage) -> list[str]:
    """Return the element types of a stream that `stage` takes as its main input, with its other inputs of the same type."""
    return [dtype for dtype in _ORDER if _takes(stage, dtype)]


def _takes(stage: Stage, dtype: str) -> bool:
    try:
        stage.output_types({port: PortType(dtype) for port in stage.inputs})
    except Exception:  # a refusal, or the pack's own code
        return False
    return True


def targets_of(stage: Stage, dtypes: Sequence[str]) -> list[str]:
    """Return the targets that run `stage` for one of `dtypes` at least, whether or not they can run here.

    The reference runs every stage. Others do where a harness takes the stage's policy in both directions, alone, or a selector
    with one of the coders that are installed.
    """
    found = [REFERENCE]
    for target in discovery.registry().targets():
        if any(_runs(pipe, stage.name, dtype, target) for pipe in _chains(stage) for dtype in dtypes):
            found.append(target.name)
    return found


def _chains(stage: Stage) -> Iterator[bq.Pipeline]:
    """Yield the shortest chains that `stage` can run in."""
    if stage.fusion_spec().access is not FusionAccess.TILE_SELECTOR:
        yield bq.chain(stage)
        return
    registry = discovery.registry()
    for name in registry.stages():
        try:
            coder = registry.stage_class(name)()
            if coder.fusion_spec().access is FusionAccess.SEGMENT_CODEC:
                yield bq.chain(stage, coder)
        except Exception:  # broken, without defaults, or no partner
            continue


def _runs(pipe: bq.Pipeline, node: str, dtype: str, target: Target) -> bool:
    try:
        types, chunk = pipe.graph.types(dtype), pipe.graph.chunk_for(dtype)
        for direction in ("forward", "inverse"):
            members = chain_members(pipe.graph, types, pipe.graph.order, direction)
            if node not in [member.node for member in members]:
                return False
            harnesses = [discovery.registry().harness(name) for name in members[0].op.strategies]
            if not any(harness.refuse(members, direction, target, chunk) is None for harness in harnesses):
                return False
    except BriquetteError:
        return False
    return True


def words_of(dtypes: Sequence[str]) -> str:
    """Return element types as people read them: a family's name, or each."""
    rest, said = set(dtypes), []
    for name, family in _FAMILIES:
        if family <= rest:
            said.append(name)
            rest -= family
    return ", ".join([*said, *(dtype for dtype in dtypes if dtype in rest)]) or "-"

"""What a selector asks of the stages behind it: the words that the coder would make of codes it has not chosen yet."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import tiles
from .errors import DeclarationError
from .plan import Plan
from .record import RunRecord
from .stage import Scope, Tail


def tail_of(plan: Plan, selector: str, record: RunRecord) -> Tail:
    """Return what follows `selector` in a run whose stages behind it have been primed."""
    nodes = plan.graph.tails[selector]
    segment = plan.graph.nodes[nodes[-1]].fusion_spec().span
    return Tail(segment, partial(_cost, plan, nodes, record, segment), _room(plan, selector))


def _cost(plan: Plan, nodes: tuple[str, ...], record: RunRecord, segment: int, codes: NDArray[Any]) -> NDArray[np.int64]:
    scopes = [Scope(record.of(n), plan.types[n], codes.size, plan.chunk) for n in nodes]
    value = codes
    for node, scope in zip(nodes[:-1], scopes[:-1], strict=True):
        stage = plan.graph.nodes[node]
        value = np.asarray(stage.forward({stage.inputs[0]: value}, scope)[stage.outputs[0]])
    words = plan.graph.nodes[nodes[-1]].cost(value, scopes[-1])
    if words.shape != (-(-codes.size // segment),):
        raise DeclarationError(
            f"the cost that {nodes[-1]} tells of {codes.size} elements has the shape {words.shape}, "
            f"not one number for each of {-(-codes.size // segment)} segments of {segment}"
        )
    return words


def _room(plan: Plan, selector: str) -> Any:
    """Return what says how many modes a tile may choose from where coders keep them in their metadata, else None."""
    graph = plan.graph
    keepers = []
    for port in graph.nodes[selector].outputs:
        if plan.types[selector][port].tiles is None:
            continue
        for node, entry in graph.consumers.get((selector, port), ()):
            stage = graph.nodes[node]
            spare = stage.spare_meta_bits(plan.types[node][stage.inputs[0]].dtype)
            if entry in stage.optional_inputs and spare:
                keepers.append((stage.fusion_spec().span, spare))
    if not keepers:
        return None
    return lambda elements: min(tiles.room(elements, segment, spare) for segment, spare in keepers)

"""A group by its stages' NumPy forms: for what a policy in the element form cannot carry."""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import NDArray

from briquette.graph import NodePort
from briquette.harness import GroupRun
from briquette.ports import Chunked, PortValue
from briquette.stage import Scope

from .chain import Composition


def forward(parts: Composition, source: NDArray[Any], run: GroupRun) -> dict[NodePort, PortValue]:
    """Return what the group makes of `source`, shape (count,): the tail's main output and the values kept aside."""
    made: dict[NodePort, PortValue] = {}
    value: PortValue = source
    for member in parts.members:
        stage, record = member.stage, run.record
        count = value.size if not isinstance(value, Chunked) else run.coded
        tally = partial(record.tally, member.node)
        scope = Scope(record.of(member.node), member.types, count, run.chunk, tally, stretch=run.stretch)
        outputs = stage.forward({stage.inputs[0]: value}, scope)
        value = outputs[stage.outputs[0]]
        made.update({(member.node, port): outputs[port] for port in stage.fused_aux_outputs()})
    tail = parts.members[-1]
    return {**made, (tail.node, tail.stage.outputs[0]): value}

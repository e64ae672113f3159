"""A transform between neighbouring lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage

from .blocks import blocks, check_codes, stream


@dataclass(frozen=True)
class WarpLift(Stage):
    """Take from every second code the one before it: the first step of a lifted Haar transform."""

    name: ClassVar[str] = "warp-lift"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of int32 codes."""
        check_codes(self.name, inputs["in"])
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Lift codes ``in``, shape (count,)."""
        rows = blocks(inputs["in"], 32)
        rows[:, 1::2] -= rows[:, ::2]
        return {"out": stream(rows, scope.count)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Undo `forward`."""
        rows = blocks(outputs["out"], 32)
        rows[:, 1::2] += rows[:, ::2]
        return {"in": stream(rows, scope.count)}

    def fusion_spec(self) -> FusionSpec:
        """REGION_LOCAL over 32."""
        return FusionSpec(FusionAccess.REGION_LOCAL, 32)

    def fused_op(self) -> FusedOp:
        """The warp-register policy ``WarpLift``, in the element form."""
        return FusedOp("warp-register", "WarpLift", "acme_warp/cuda/lift.cuh", geometry={"element_form": 1})

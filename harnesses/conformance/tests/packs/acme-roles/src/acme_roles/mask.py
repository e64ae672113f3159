"""An ELEMENTWISE transform with a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class Mask(Stage):
    """Flip the bits of every code that are set in `mask`."""

    mask: int = 0x2B

    name: ClassVar[str] = "acme-mask"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'acme-mask' takes codes, not {inputs['in']}")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        codes: Any = np.asarray(inputs["in"])
        return {"out": codes ^ codes.dtype.type(self.mask)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        codes: Any = np.asarray(outputs["out"])
        return {"in": codes ^ codes.dtype.type(self.mask)}

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.ELEMENTWISE)

    def fused_op(self) -> FusedOp:
        return FusedOp("warp-register", "Mask", "acme_roles/cuda/mask.cuh", ParamStruct((("mask", "int64"),)))

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        return {"mask": self.mask}

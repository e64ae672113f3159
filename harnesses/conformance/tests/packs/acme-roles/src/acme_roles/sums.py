"""A stage with a NumPy form only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class RunningSum(Stage):
    """Sum the codes up over the whole stream, modulo 2^bits."""

    name: ClassVar[str] = "acme-sum"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        if not inputs["in"].is_code:
            raise PipelineError(f"stage 'acme-sum' takes codes, not {inputs['in']}")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        codes: Any = np.asarray(inputs["in"])
        return {"out": np.cumsum(codes.view(f"u{codes.itemsize}"), dtype=f"u{codes.itemsize}").view(codes.dtype)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        sums: Any = np.asarray(outputs["out"])
        bits = sums.view(f"u{sums.itemsize}")
        return {"in": np.diff(bits, prepend=bits.dtype.type(0)).view(sums.dtype)}

"""A stage that stays as it is, in NumPy: its output may depend on the whole stream. Stages on either side still fuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage
from numpy.typing import NDArray


@dataclass(frozen=True)
class MyPack(Stage):
    """Turn the stream around. FILL IN."""

    name: ClassVar[str] = "my-pack"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream."""
        if inputs["in"].layout != "stream":
            raise PipelineError(f"stage {self.name!r} takes a stream, not {inputs['in']}")
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Turn ``in``, shape (count,), into ``out`` of the same shape and type. FILL IN: keep nothing in `self`."""
        stream: NDArray[Any] = np.asarray(inputs["in"])
        return {"out": stream[::-1].copy()}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring ``in`` back, from parameters, `scope.state` and the outputs alone. FILL IN: undo it exactly."""
        stream: NDArray[Any] = np.asarray(outputs["out"])
        return {"in": stream[::-1].copy()}

    # fusion_spec and fused_op are not there: the stage is UNFUSABLE, a barrier

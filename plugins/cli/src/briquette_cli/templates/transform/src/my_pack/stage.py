"""A transform: each code becomes another code, whatever stands around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import PortType, PortValue
from briquette.stage import Scope, Stage
from numpy.typing import NDArray

#: what the policy is told when it runs; the C struct is generated from this
_PARAMS: Final = ParamStruct((("offset", "int64"),))


@dataclass(frozen=True)
class MyPack(Stage):
    """Add a number to each code, modulo 2**bits. FILL IN.

    Parameters
    ----------
    offset : int, optional
        What is added, a 64-bit integer; 1 by default.

    Raises
    ------
    PipelineError
        If `offset` is no 64-bit integer.
    """

    offset: int = 1

    name: ClassVar[str] = "my-pack"

    def __post_init__(self) -> None:
        if isinstance(self.offset, bool) or not isinstance(self.offset, int) or not -(2**63) <= self.offset < 2**63:
            raise PipelineError(f"offset = {self.offset!r} of stage {self.name!r} must be a 64-bit integer")

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the input's type; raise `PipelineError` for anything but a stream of codes."""
        if not inputs["in"].is_code:
            raise PipelineError(f"stage {self.name!r} takes 16-, 32- or 64-bit integer codes, not {inputs['in']}; quantize first")
        return {"out": inputs["in"]}

    # -- the NumPy form: the oracle ------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Transform codes ``in``, shape (count,), into ``out`` of the same shape and type."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        numbers = codes.view(f"u{codes.itemsize}")
        return {"out": (numbers + self._offset(numbers)).view(codes.dtype)}  # FILL IN

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the codes ``in`` back."""
        codes: NDArray[Any] = np.asarray(outputs["out"])
        numbers = codes.view(f"u{codes.itemsize}")
        return {"in": (numbers - self._offset(numbers)).view(codes.dtype)}  # FILL IN: undo it exactly, for every input

    def _offset(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return np.array([self.offset], np.int64).view(np.uint64).astype(numbers.dtype)

    # -- what lets it fuse ---------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE: no element depends on another."""
        return FusionSpec(FusionAccess.ELEMENTWISE)

    def fused_op(self) -> FusedOp:
        """The policy ``MyPack``, which serves both harnesses."""
        harnesses = ("warp-register", "chunk-cooperative")
        header = "my_pack/cuda/stage.cuh"
        return FusedOp(harnesses, "MyPack", header, _PARAMS)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the values of `_PARAMS`."""
        return {"offset": self.offset}

"""A quantizer, the head of a chain: values become integer codes, and what a code cannot hold within the bound is kept aside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from briquette import outliers
from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import ArchiveError, PipelineError
from briquette.params import ParamStruct, Scalar
from briquette.ports import Chunked, PortType, PortValue
from briquette.stage import PrimeContext, Scope, Stage
from numpy.typing import NDArray

#: what the policy is told when it runs; the C struct is generated from this
_PARAMS: Final = ParamStruct((("step", "float32"), ("inverse", "float32"), ("bound", "float32"), ("fill", "int32")))
#: the largest float32 below 2**31: what a code holds
_LIMIT: Final = np.float32(2147483520.0)


@dataclass(frozen=True)
class MyPack(Stage):
    """Quantize float32 values to multiples of the largest power of two that is at most twice the bound. FILL IN."""

    name: ClassVar[str] = "my-pack"
    outputs: ClassVar[tuple[str, ...]] = ("codes", "outliers")
    needs_bound: ClassVar[bool] = True

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return the types of codes and outliers; raise `PipelineError` for anything but a stream of float32."""
        if inputs["in"] != PortType("float32"):  # FILL IN: the types you serve
            raise PipelineError(f"stage {self.name!r} takes float32 values, not {inputs['in']}; use another quantizer")
        return {"codes": PortType("int32"), "outliers": PortType("float32", "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk in which every value is kept aside."""
        return outliers.max_chunk_words(chunk, types[port].itemsize)

    def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Scalar]:
        """Resolve what this run needs and its inverse reads from the archive. FILL IN.

        ``eb`` is the absolute bound, ``quant_step`` the step, ``fill_code`` the code of the first finite value, which takes
        the place of codes that do not fit.
        """
        eb = ctx.absolute_bound()
        exponent = math.frexp(eb)[1] if eb else -126  # eb is in [2**(exponent - 1), 2**exponent)
        state: dict[str, Scalar] = {"eb": eb, "quant_step": math.ldexp(1.0, min(max(exponent, -126), 126)), "fill_code": 0}
        first = ctx.first_finite()
        if first is not None:
            state["fill_code"] = int(self._quantize(np.array([first], np.float32), state)[0][0])
        return state

    # -- the NumPy form: the oracle ------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Quantize ``in``, shape (count,), into ``codes`` and ``outliers``."""
        values: NDArray[Any] = np.asarray(inputs["in"])
        codes, kept = self._quantize(values, scope.state)
        scope.tally("outliers", int(kept.sum()))
        return {"codes": codes, "outliers": outliers.encode(kept, values, scope.chunk)}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Bring the values ``in`` back; raise `ArchiveError` if the outliers cannot belong to them."""
        codes, aside = outputs["codes"], outputs["outliers"]
        if isinstance(codes, Chunked) or not isinstance(aside, Chunked):
            raise ArchiveError(f"stage {self.name!r} was not given a stream of codes and chunked outliers")
        with np.errstate(all="ignore"):
            values = codes.astype(np.float32) * np.float32(self._params(scope.state)["step"])  # FILL IN
        where, what = outliers.decode(aside, scope.count, scope.chunk, np.float32)
        values[where] = what
        return {"in": values}

    def _quantize(self, values: NDArray[Any], state: Mapping[str, Scalar]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return the codes, and which values to keep aside: what the policy does, operation by operation. FILL IN."""
        p = self._params(state)
        with np.errstate(all="ignore"):
            q: NDArray[np.float32] = np.rint(values * np.float32(p["inverse"]))
            fits = np.abs(q) <= _LIMIT  # false for NaN
            codes = np.where(fits, q, np.float32(0)).astype(np.int32)
            codes[~fits] = p["fill"]
            kept = ~(fits & (np.abs(values - q * np.float32(p["step"])) <= np.float32(p["bound"])))
        return codes, kept

    def _params(self, state: Mapping[str, Scalar]) -> dict[str, Any]:
        """Return the parameters; raise `ArchiveError` for a state that no run can have resolved (archives are not trusted)."""
        eb, step, fill = state.get("eb"), state.get("quant_step"), state.get("fill_code")
        given = f"eb={eb!r}, quant_step={step!r}, fill_code={fill!r}"
        if not (isinstance(eb, float) and isinstance(step, float) and isinstance(fill, int)):
            raise ArchiveError(f"the run record of {self.name!r} lacks numbers: {given}")
        if not (0 <= eb < math.inf and math.frexp(step)[0] == 0.5 and 2.0**-126 <= step <= 2.0**126):
            raise ArchiveError(f"the run record of {self.name!r} is impossible: {given}")
        with np.errstate(over="ignore", under="ignore"):
            bound = np.float32(eb)
        if float(bound) > eb:  # the check is against the bound rounded toward zero
            bound = np.nextafter(bound, np.float32(0))
        return {"step": step, "inverse": 1.0 / step, "bound": float(bound), "fill": fill}

    # -- what lets it fuse ---------------------------------------------------------------------------------

    def fusion_spec(self) -> FusionSpec:
        """ELEMENTWISE; heads a group."""
        return FusionSpec(FusionAccess.ELEMENTWISE)

    def fused_op(self) -> FusedOp:
        """The policy ``MyPack``, a head of both harnesses."""
        harnesses = ("warp-register", "chunk-cooperative")
        header = "my_pack/cuda/stage.cuh"
        return FusedOp(harnesses, "MyPack", header, _PARAMS, {"head": 1})

    def fused_aux_outputs(self) -> tuple[str, ...]:
        """The outliers leave the group beside the codes."""
        return ("outliers",)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        """Return the values of `_PARAMS` for a run."""
        return self._params(state)

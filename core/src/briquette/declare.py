"""What a stage declares about its fused form: role, span, and the device policy that carries it out."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from .errors import DeclarationError
from .params import ParamStruct

#: the largest span, in elements or bytes, over which any role may keep state
MAX_SPAN: Final = 65_536

#: what spans are counted in
SpanUnit = Literal["elements", "bytes"]


class FusionAccess(enum.Enum):
    """Role: how a stage's output depends on its input, which decides what it may be composed with."""

    UNFUSABLE = "unfusable"
    ELEMENTWISE = "elementwise"
    REGION_LOCAL = "region-local"
    SEGMENT_CODEC = "segment-codec"
    TILE_SELECTOR = "tile-selector"
    LAYOUT = "layout"


@dataclass(frozen=True)
class FusionSpec:
    """Role and span.

    Parameters
    ----------
    access : FusionAccess
        UNFUSABLE by default: a barrier.
    span : int
        Reset period, segment length or tile length in elements, 1 to 65,536; 1 for ELEMENTWISE.
    unit : {"elements", "bytes"}
        ``bytes`` for stages that see their input as bytes, whatever its type: the archive's chunk is then exactly one span.
    reason : str, optional
        Why the stage is UNFUSABLE, for those who read plans: a clause such as ``its prediction spans the whole field``.
    """

    access: FusionAccess = FusionAccess.UNFUSABLE
    span: int = 1
    unit: SpanUnit = "elements"
    reason: str = ""

    def __post_init__(self) -> None:
        if self.unit not in get_args(SpanUnit):
            raise DeclarationError(f"a span is counted in {' or '.join(get_args(SpanUnit))}, not {self.unit!r}")
        if not 1 <= self.span <= MAX_SPAN:
            raise DeclarationError(f"span {self.span} is outside 1..{MAX_SPAN} {self.unit}")
        if self.access is FusionAccess.ELEMENTWISE and self.span != 1:
            raise DeclarationError(f"an ELEMENTWISE stage has span 1, not {self.span}")
        if self.access is FusionAccess.ELEMENTWISE and self.unit != "elements":
            raise DeclarationError("an ELEMENTWISE stage has a span of 1 element, not 1 byte")

    @property
    def fusable(self) -> bool:
        return self.access is not FusionAccess.UNFUSABLE

    def elements(self, itemsize: int) -> int:
        """Return the span in elements of `itemsize` bytes; raise `DeclarationError` where it is no whole number of them."""
        if self.unit == "elements":
            return self.span
        if self.span % itemsize:
            raise DeclarationError(f"a span of {self.span} bytes holds no whole number of elements of {itemsize} bytes")
        return self.span // itemsize


@dataclass(frozen=True)
class FusedOp:
    """The device policy that carries a stage out inside a harness.

    Parameters
    ----------
    strategy : str or tuple of str
        Name of the harness (execution model) the policy is written for; several, the preferred one first, where it serves them.
    op_name : str
        The policy's type name, unqualified. It lives in the namespace named like the header's package.
    include_header : str
        ``"package/cuda/file.cuh"``: package data of the pack, included as ``<package/cuda/file.cuh>``.
    params : ParamStruct, optional
        Layout of the run-time parameters; their values come from `Stage.fused_params`.
    geometry : mapping
        What the harness wants to know; validated by the harness, opaque to core.
    dtypes : tuple of str
        NumPy names of the code types the policy works on; empty means any the harness knows.
    """

    strategy: str | tuple[str, ...]
    op_name: str
    include_header: str
    params: ParamStruct | None = None
    geometry: Mapping[str, int] = field(default_factory=dict, hash=False)
    dtypes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.op_name.isidentifier():
            raise DeclarationError(f"op_name {self.op_name!r} is not a type name")
        parts = self.include_header.split("/")
        if len(parts) < 2 or not parts[0].isidentifier() or ".." in parts or "" in parts:
            raise DeclarationError(f"include_header {self.include_header!r} is not of the form package/dir/file.cuh")
        object.__setattr__(self, "geometry", dict(self.geometry))

    @property
    def strategies(self) -> tuple[str, ...]:
        """The harnesses that the policy serves."""
        return (self.strategy,) if isinstance(self.strategy, str) else self.strategy

    @property
    def namespace(self) -> str:
        """The pack's C++ namespace: the first component of `include_header`."""
        return self.include_header.split("/", 1)[0]

    @property
    def qualified(self) -> str:
        return f"::{self.namespace}::{self.op_name}"

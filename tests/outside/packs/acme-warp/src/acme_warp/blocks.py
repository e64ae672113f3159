"""What the pack's stages share: blocks of 32 elements a lane, times a power of two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.ports import PortType, PortValue

Rows = NDArray[np.uint32]


def check_elements(stage: str, elems_per_lane: object) -> None:
    """Raise `PipelineError` unless `elems_per_lane` is a power of two up to 32."""
    if isinstance(elems_per_lane, bool) or elems_per_lane not in (1, 2, 4, 8, 16, 32):
        raise PipelineError(f"elems_per_lane = {elems_per_lane!r} of stage {stage!r} must be a power of two, from 1 to 32")


def check_codes(stage: str, given: PortType) -> None:
    """Raise `PipelineError` unless the port is a stream of int32 codes."""
    if given != PortType("int32"):
        raise PipelineError(f"stage {stage!r} takes int32 codes, not {given}; quantize float32 data first")


def blocks(stream: PortValue, span: int) -> Rows:
    """Return int32 codes as unsigned (arithmetic modulo 2**32), one block a row, the last one filled up with zeros."""
    codes: NDArray[Any] = np.asarray(stream)
    return np.pad(codes, (0, -codes.size % span)).view(np.uint32).reshape(-1, span)


def stream(rows: Rows, count: int) -> NDArray[np.int32]:
    """Undo `blocks`."""
    return rows.reshape(-1)[:count].view(np.int32)

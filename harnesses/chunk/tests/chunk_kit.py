"""What the tests of chains share: fields, and a comparison with the NumPy reference that no raw archive can get round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import briquette as bq
from briquette.ports import Chunked
from briquette.record import Bound

SIZES = (4096, 8192, 16384)
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")


def field(n: int, dtype: str) -> NDArray[Any]:
    """Smooth values with stretches of zeros, so that some chunks shrink and some do not."""
    rng = np.random.default_rng(n)
    walk = np.cumsum(rng.normal(size=n))
    walk[np.arange(n) // 1500 % 3 == 1] = 0
    return walk.astype(dtype) if dtype.startswith("float") else (20 * walk).astype(np.int64).astype(dtype)


def as_bytes(values: dict[Any, Any]) -> dict[Any, tuple[bytes, ...]]:
    """Return the bytes of the values of a run's sinks, which lie in host memory."""
    return {
        port: (v.sizes.tobytes(), v.words.tobytes()) if isinstance(v, Chunked) else (v.tobytes(),) for port, v in values.items()
    }


def reference(pipe: bq.Pipeline, x: NDArray[Any], bound: Bound | None = None) -> tuple[dict[Any, Any], NDArray[Any]]:
    """Return the sinks' values and the reconstruction of the NumPy reference, run stage by stage."""
    run = pipe.executable(x.dtype.name, "numpy", "off")
    record, values = run.forward(x, bound, 1)
    out = np.empty_like(x)
    run.inverse(dict(values), record, x.size, 1, out)
    return values, out


def check(
    pipe: bq.Pipeline, x: NDArray[Any], groups: int, eb: float | None = None, staged: bool = True, target: str = "host"
) -> None:
    """Assert that the target makes the reference's bytes, fused and `staged`, in as many launches as are due."""
    x.flags.writeable = False
    bound = None if eb is None else Bound(eb)
    expected, restored = reference(pipe, x, bound)
    for fusion, launches in (("auto", groups), ("off", len(pipe.graph.nodes)))[: 2 if staged else 1]:
        run = pipe.executable(x.dtype.name, target, fusion)
        assert (run.plan.forward.launches, run.plan.inverse.launches) == (launches, launches), run.plan.explain()
        assert not run.plan.forward.transfers
        record, values = run.forward(x, bound, 1)
        values = {port: run.to_host(value) for port, value in values.items()}
        assert as_bytes(values) == as_bytes(expected), (x.size, x.dtype, fusion)
        out = np.full_like(x, 77)
        run.inverse(dict(expected), record, x.size, 1, out)
        assert out.tobytes() == restored.tobytes(), (x.size, x.dtype, fusion)
    if bound is None:
        assert restored.tobytes() == x.tobytes()

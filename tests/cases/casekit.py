"""Round trips under every way of running, and a judge of the bound that shares no code with briquette."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import briquette as bq
from briquette import discovery

PRESETS: Final = ("fast", "planes", "zigzag", "adaptive")
#: members of each preset's only group, in both directions
GROUPS: Final = {
    "fast": (("linear-quantizer", "lorenzo-1d", "plain-rate"),),
    "planes": (("linear-quantizer", "lorenzo-1d", "adaptive-bitplane"),),
    "zigzag": (("linear-quantizer", "lorenzo-1d", "zigzag", "adaptive-bitplane"),),
    "adaptive": (("linear-quantizer", "adaptive-lorenzo", "plain-rate"),),
}
#: kernels of a preset that is run staged, where some of its stages have a NumPy form only then
STAGED_LAUNCHES: Final = {"adaptive": 1}
_PIECE: Final = 1 << 19


class Way(NamedTuple):
    """One way of running: a target and a fusion mode."""

    target: str
    fusion: str


REFERENCE: Final = Way("numpy", "off")
FUSED: Final = Way("host", "force")
STAGED: Final = Way("host", "off")


class Trip(NamedTuple):
    """A reconstruction, the archive it came from, and what the run said."""

    restored: NDArray[Any]
    blob: bytes
    result: bq.CompressResult

    @property
    def ratio(self) -> float:
        return self.result.ratio


@functools.lru_cache(maxsize=1)
def host_missing() -> str | None:
    """Why the `host` target cannot run here, or None."""
    return discovery.registry().target("host").unavailable()


def ways(wanted: Sequence[Way] = (REFERENCE, FUSED, STAGED)) -> list[Way]:
    """The ways of running that exist here; without a compiler that is the reference alone."""
    return [way for way in wanted if way.target == "numpy" or not host_missing()]


def bits(x: NDArray[Any]) -> NDArray[Any]:
    """The elements' bits in C order, as unsigned integers."""
    flat = np.ascontiguousarray(x).reshape(-1)
    return flat.astype(flat.dtype.newbyteorder("=")).view(f"u{flat.dtype.itemsize}")


def assert_bound(x: NDArray[Any], y: NDArray[Any], eb: float) -> None:
    """Every finite value of `x` within `eb` in `y`, decided in exact arithmetic; the others bit for bit.

    The float64 difference of two numbers errs by at most half a unit in its last place, so it decides except within a few
    units of `eb`, where rational numbers do.
    """
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    a_bits, b_bits, exact = bits(x), bits(y), Fraction(eb)
    low, high = eb * (1 - 2.0**-50), eb * (1 + 2.0**-50)
    for at in range(0, a_bits.size, _PIECE):
        part = slice(at, at + _PIECE)
        same = a_bits[part] == b_bits[part]
        with np.errstate(invalid="ignore"):  # widening a signalling NaN
            a, b = (v[part].view(f"f{x.dtype.itemsize}").astype(np.float64) for v in (a_bits, b_bits))
        finite = np.isfinite(a)
        broken = ~finite & ~same
        assert not broken.any(), f"value {at + int(broken.argmax())} is not finite and did not come back bit for bit"
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(a - b)
        wrong = finite & ~same & ~(error <= high)
        assert not wrong.any(), f"{wrong.sum()} values miss {eb!r}, first {at + int(wrong.argmax())}: {error[wrong][0]!r}"
        for i in np.flatnonzero(finite & ~same & ~(error < low)):
            assert abs(Fraction(float(a[i])) - Fraction(float(b[i]))) <= exact, f"value {at + i} misses {eb!r}"


def exact_range(x: NDArray[Any]) -> Fraction:
    """The range of the finite values as a rational number; 0 where there is none."""
    finite = x[np.isfinite(x)]
    return Fraction(float(finite.max())) - Fraction(float(finite.min())) if finite.size else Fraction(0)


def round_trip(x: NDArray[Any], eb: float, mode: str, pipeline: str, way: Way, threads: int | None = None) -> Trip:
    """Compress and decompress one way, into a poisoned output; the plan is what the way promises, the size is limited."""
    result = bq.compress_run(x, eb, mode, pipeline=pipeline, target=way.target, fusion=way.fusion, threads=threads)
    blob = bytes(result.archive)
    assert len(blob) <= x.nbytes + 1024
    poisoned = np.empty(x.shape, x.dtype)
    poisoned.reshape(-1).view(np.uint8)[:] = 0xA5
    back = bq.decompress_run(blob, target=way.target, fusion=way.fusion, threads=threads, out=poisoned)
    assert back.array is poisoned
    for plan in (p for p in (result.plan, back.plan) if p is not None):
        groups = GROUPS[pipeline] if way == FUSED else ()
        launches = {"numpy": 0, "host": len(groups) or STAGED_LAUNCHES.get(pipeline, len(GROUPS[pipeline][0]))}[way.target]
        for direction in (plan.forward, plan.inverse):
            assert (direction.groups, direction.launches) == (groups, launches)
    return Trip(poisoned, blob, result)


def check(
    x: NDArray[Any],
    eb: float,
    mode: str = "abs",
    pipelines: Sequence[str] = ("fast",),
    *,
    wanted: Sequence[Way] = (REFERENCE, FUSED, STAGED),
    coded: bool | None = True,
    threads: int | None = None,
) -> dict[str, Trip]:
    """Round trips of `x` with every pipeline and way: same archives, same reconstructions, the bound.

    Parameters
    ----------
    coded : bool or None
        Whether the archives must be coded (True) or hold the data raw (False); None where either will do.

    Returns
    -------
    dict
        The trip of the first way, by pipeline.
    """
    found = {}
    for pipeline in pipelines:
        trips = [round_trip(x, eb, mode, pipeline, way, threads) for way in ways(wanted)]
        first = trips[0]
        for other in trips[1:]:
            assert other.blob == first.blob
            assert other.result.outliers == first.result.outliers
            assert np.array_equal(bits(other.restored), bits(first.restored))
        if coded is not None:
            assert first.result.raw is not coded, f"the archive {'holds the data raw' if coded else 'is coded'}"
        limit = Fraction(eb) if mode == "abs" else Fraction(eb) * exact_range(x)
        resolved = 0.0 if first.result.raw else first.result.eb
        assert resolved is not None
        assert Fraction(resolved) <= limit, "the bound was rounded up"
        assert_bound(x, first.restored, resolved)
        found[pipeline] = first
    return found


def python(
    code: str,
    cwd: Path,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    fails: bool = False,
    isolated: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter inside `cwd`; fails the test where the program fails (or, with `fails`, does not)."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    command = [sys.executable, *(["-P"] if isolated else []), "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **(env or {})},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=300,
    )
    assert (done.returncode != 0) is fails, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done

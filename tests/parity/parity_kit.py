"""What the parity tests share: ways of running, expected plans, poisoned outputs, and a judge of the bound of its own."""

from __future__ import annotations

import hashlib
import json
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
from briquette.executor import Executable
from briquette.ports import Chunked, PortValue
from briquette.record import RunRecord

#: preset -> its nodes, which are its only group too
PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "fast": ("linear-quantizer", "lorenzo-1d", "plain-rate"),
    "planes": ("linear-quantizer", "lorenzo-1d", "adaptive-bitplane"),
    "zigzag": ("linear-quantizer", "lorenzo-1d", "zigzag", "adaptive-bitplane"),
    "adaptive": ("linear-quantizer", "adaptive-lorenzo", "plain-rate"),
}
#: groups of which some nodes run as NumPy when staged: those that the modes of tiles go from and to
TIED: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    (head, *PRESETS["adaptive"][1:]): frozenset(PRESETS["adaptive"][1:]) for head in ("linear-quantizer", "log-quantizer")
}


class Way(NamedTuple):
    """A target and a fusion mode."""

    target: str
    fusion: str


REFERENCE: Final = Way("numpy", "auto")
STAGED: Final = Way("host", "off")
FUSED: Final = Way("host", "auto")
WAYS: Final = (REFERENCE, STAGED, FUSED)


def assert_plan(plan: bq.Plan | None, way: Way, nodes: tuple[str, ...]) -> None:
    """Fused: one group and one launch each way. Staged: one launch a stage. Reference: none."""
    assert plan is not None, "the archive is raw: nothing was decoded"
    groups = (nodes,) if way == FUSED else ()
    launches = {REFERENCE: 0, STAGED: len(nodes) - len(TIED.get(nodes, ())), FUSED: 1}[way]
    for direction in (plan.forward, plan.inverse):
        assert (direction.groups, direction.launches) == (groups, launches), plan.explain()
        assert tuple(n for s in direction.steps[:: 1 if direction is plan.forward else -1] for n in s.nodes) == nodes


def programs(way: Way, nodes: tuple[str, ...], direction: str) -> list[tuple[str, tuple[str, ...]]]:
    """The programs a run of one direction must ask for, in order."""
    if way == REFERENCE:
        return []
    steps = [nodes] if way == FUSED else [(n,) for n in nodes if n not in TIED.get(nodes, ())]
    return [(direction, s) for s in (steps if direction == "forward" else steps[::-1])]


def bits(x: NDArray[Any]) -> NDArray[Any]:
    """The elements as unsigned integers, flat."""
    return np.ascontiguousarray(x).reshape(-1).view(f"u{x.dtype.itemsize}")


def poisoned(shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array that holds a NaN pattern no field has (floats) or 0xA5 bytes (anything else)."""
    out = np.empty(shape, dtype)
    flat = out.reshape(-1)
    if out.dtype.kind == "f":
        flat.view(f"u{out.dtype.itemsize}")[:] = 0x7FB5A5A5 if out.dtype.itemsize == 4 else 0x7FF5A5A5_A5A5A5A5
    else:
        flat.view(np.uint8)[:] = 0xA5
    return out


def assert_bound(x: NDArray[Any], y: NDArray[Any], eb: float) -> None:
    """Every finite value of `x` within `eb` in `y`, as real numbers; NaN and infinities bit for bit.

    The difference in long double and its own rounding error (two-sum) decide; where long double is the wider type the
    sum of two float32 is exact but for far exponents. The worst values and some others are judged again as fractions.
    """
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    special = ~np.isfinite(x.reshape(-1))
    assert np.array_equal(bits(x)[special], bits(y)[special]), "a NaN or an infinity changed"
    with np.errstate(invalid="ignore"):
        a, b = x.reshape(-1)[~special].astype(np.longdouble), -y.reshape(-1)[~special].astype(np.longdouble)
        total = a + b
        part = total - a
        rest = (a - (total - part)) + (b - part)
        size, rest = np.abs(total), np.where(total < 0, -rest, rest)
        within = (size < np.longdouble(eb)) | ((size == np.longdouble(eb)) & (rest <= 0))
    assert within.all(), f"{np.count_nonzero(~within)} values miss {eb!r}, by up to {size[~within].max() / eb!r} times"
    worst = np.argpartition(size, -24)[-24:] if size.size > 24 else np.arange(size.size)
    for i in {*worst.tolist(), *range(0, size.size, size.size // 24 + 1)}:
        assert abs(Fraction(float(a[i])) + Fraction(float(b[i]))) <= Fraction(eb), f"finite value {i} misses {eb!r}"


def compressed(x: Any, eb: float | None, mode: str, pipeline: Any, way: Way, threads: int = 1) -> bq.CompressResult:
    """Compress into a poisoned buffer."""
    room = poisoned(bq.max_archive_bytes(x), np.uint8)
    return bq.compress_run(x, eb, mode, pipeline=pipeline, target=way.target, fusion=way.fusion, threads=threads, out=room)


def restored(blob: Any, like: NDArray[Any], way: Way, threads: int = 1) -> bq.DecompressResult:
    """Decompress into a poisoned array."""
    out = poisoned(like.shape, like.dtype)
    return bq.decompress_run(blob, target=way.target, fusion=way.fusion, threads=threads, out=out)


def assert_same_sinks(runs: Sequence[Executable], x: NDArray[Any], bound: bq.Bound | None, threads: int = 1) -> NDArray[Any]:
    """Run `x` through executables of one pipeline: same state, same sinks, same reconstruction; return it.

    Below the archive, so that arrays too small for a coded archive are compared as well.
    """
    record, values = runs[0].forward(x, bound, threads)
    first = _inverse(runs[0], values, record, x)
    for run in runs[1:]:
        again, others = run.forward(x, bound, threads)
        assert again.state == record.state
        for port, value in values.items():
            _assert_same_value(value, others[port], f"{run.plan.target}/{run.plan.fusion}, n = {x.size}, {port}")
        assert np.array_equal(bits(_inverse(run, others, record, x, threads)), bits(first)), (run.plan.target, x.size)
    return first


def _inverse(run: Executable, values: Mapping[Any, PortValue], record: RunRecord, x: NDArray[Any], threads: int = 1) -> Any:
    return run.inverse(values, RunRecord(record.state), x.size, threads, poisoned(x.size, x.dtype))


def _assert_same_value(a: PortValue, b: PortValue, what: str) -> None:
    assert isinstance(a, Chunked), what
    assert isinstance(b, Chunked), what
    assert np.array_equal(a.sizes, b.sizes), what
    assert np.array_equal(a.words, b.words), what


def walk(rng: np.random.Generator, n: int, dtype: str, specials: bool = True) -> NDArray[Any]:
    """A smooth random field; with `specials`, now and then a NaN, an infinity or a huge value."""
    x = (np.cumsum(rng.normal(0.0, 0.02, n)) + np.sin(np.arange(n) / 30.0)).astype(dtype)
    if specials and n:
        at = rng.integers(0, n, 1 + n // 700)
        x[at] = rng.choice(np.array([np.nan, np.inf, -np.inf, 2e37, -1e37]), at.size)
    return x


def sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


class FreshReader:
    """A process that decodes archives from their files alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fresh_reader.py"))],
            cwd=folder,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, blob: Any, way: Way, threads: int = 1) -> dict[str, Any]:
        """Return dtype, shape, SHA-256 of the reconstruction and the inverse plan's groups and launches."""
        path = self._folder / "archive"
        path.write_bytes(blob)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([str(path), way.target, way.fusion, threads]) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline() or '{"error": "the process ended"}')
        assert "error" not in answer, answer["error"]
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)

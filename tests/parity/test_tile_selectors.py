"""Chains with a tile selector on the host: fused, staged and NumPy make one payload, and find the same damage."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from parity_kit import FUSED, REFERENCE, STAGED, WAYS, assert_same_sinks, poisoned, walk

import briquette as bq
from briquette import discovery
from briquette.declare import FusedOp
from briquette.errors import ArchiveError
from briquette.executor import Executable
from briquette.ports import Chunked
from briquette.record import RunRecord
from briquette_bitpack.plainrate import PlainRate

CHUNK = 8192
EDGES = (CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 257, 3 * CHUNK - 31, 3 * CHUNK + 600)


class Chain(NamedTuple):
    """A pipeline: type of the data and of the codes ("" for integer data), and whether the coder carries the tiles."""

    dtype: str
    codes: str
    tile: int
    coder: str = "plain-rate"
    segment: int = 32
    zigzag: bool = False
    carried: bool = True
    region: int = 0

    def pipeline(self) -> bq.Pipeline:
        head = [stage("linear-quantizer", code_type=self.codes)] if self.codes else []
        before = [stage("lorenzo-1d", region=self.region)] if self.region else []
        after = [stage("zigzag")] if self.zigzag else []
        coder = stage(self.coder, segment=self.segment)
        return connected([*head, *before, stage("adaptive-lorenzo", tile=self.tile), *after, coder], self.carried)

    def __str__(self) -> str:
        words = [self.dtype, self.codes, str(self.tile), self.coder, str(self.segment)]
        words += ["zigzag"] * self.zigzag + ["apart"] * (not self.carried) + [f"after-{self.region}"] * bool(self.region)
        return "-".join(filter(None, words))


CHAINS = (
    Chain("float32", "int32", 256),
    Chain("float32", "int32", 256, carried=False),
    Chain("float32", "int16", 64, "adaptive-bitplane"),
    Chain("float64", "int64", 256, zigzag=True),
    Chain("float64", "int32", 512, "adaptive-bitplane", 128, zigzag=True, carried=False),
    Chain("int16", "", 1024, segment=64),
    Chain("uint16", "", 32),
    Chain("int32", "", 96, "adaptive-bitplane", region=48),
    Chain("uint32", "", 256, segment=256),
    Chain("int64", "", 32, carried=False),
    Chain("int64", "", 64),
    Chain("uint64", "", 128, "adaptive-bitplane", 64),
)


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def connected(stages: Sequence[bq.Stage], carried: bool) -> bq.Pipeline:
    """The chain of `stages`; `carried`: the coder keeps the tiles, also where `chain` would leave them to the archive."""
    if not carried:
        return bq.chain(*stages, sides=False)
    pipe = bq.Pipeline()
    nodes = [pipe.add(each) for each in stages]
    for (a, first), (b, second) in itertools.pairwise(zip(nodes, stages, strict=True)):
        pipe.connect(f"{a}.{first.outputs[0]}", f"{b}.{second.inputs[0]}")
    pipe.connect("adaptive-lorenzo.tiles", f"{nodes[-1]}.tiles")
    return pipe


def executables(pipe: bq.Pipeline, dtype: str, carried: bool) -> list[Executable]:
    """The pipeline's plans, the reference first, with the groups and launches they must have."""
    runs = [pipe.executable(dtype, way.target, way.fusion) for way in WAYS]
    nodes = tuple(runs[0].graph.nodes)
    for way, run in zip(WAYS, runs, strict=True):
        for plan in (run.plan.forward, run.plan.inverse):
            # staged, the choice needs the coder's cost and its payload the choice: NumPy makes both
            numpy_only = 2 if carried else plan.direction == "forward"
            launches = {REFERENCE: 0, STAGED: len(nodes) - numpy_only, FUSED: 1}[way]
            assert plan.launches == launches, run.plan.explain()
            assert plan.groups == ((nodes,) if way == FUSED else ()), run.plan.explain()
    return runs


def field(rng: np.random.Generator, n: int, dtype: str) -> NDArray[Any]:
    """Stretches of noise, walks, ramps far from zero and parabolas, with extremes now and then."""
    if dtype.startswith("float"):
        x = walk(rng, n, dtype)
        return x + np.dtype(dtype).type(rng.choice([0, 40]))
    i, which = np.arange(n), np.repeat(rng.integers(0, 4, n // 150 + 1), 150)[:n]
    parts = [
        rng.integers(-9, 10, n),
        np.cumsum(rng.integers(-5, 6, n)) + 9000,
        5 * i + rng.integers(0, 2, n),
        (i % 300) ** 2 // 9,
    ]
    x = np.choose(which, parts).astype(dtype)
    info = np.iinfo(dtype)
    at = rng.integers(0, n, 1 + n // 2000)
    x[at] = rng.choice(np.array([info.min, info.max], dtype), at.size)
    return x


def bound(chain: Chain) -> bq.Bound | None:
    return bq.Bound(4e-3) if chain.codes else None


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_every_way_makes_one_payload(chain: Chain, rng: np.random.Generator) -> None:
    runs = executables(chain.pipeline(), chain.dtype, chain.carried)
    for n in [*range(1, 601, 1 if chain == CHAINS[0] else 5), *EDGES]:
        x = field(rng, n, chain.dtype)
        back = assert_same_sinks(runs, x, bound(chain), threads=1 if n % 2 else 3)
        if not chain.codes:
            assert np.array_equal(back, x)


@pytest.mark.parametrize("chain", [c for c in CHAINS if c.dtype != "float64"], ids=str)
def test_every_way_finds_one_damage(chain: Chain, rng: np.random.Generator) -> None:
    runs = [run for run in executables(chain.pipeline(), chain.dtype, chain.carried) if run.plan.fusion == "auto"]
    x = field(rng, CHUNK + 700, chain.dtype)
    record, values = runs[0].forward(x, bound(chain), 1)
    refused = 0
    for _ in range(150):
        port = list(values)[int(rng.integers(len(values)))]
        value = values[port]
        assert isinstance(value, Chunked)
        if not value.words.size:
            continue
        words = value.words.copy()
        near = min(words.size, 70 if rng.random() < 0.7 else words.size)  # metadata and modes stand first
        words[rng.integers(near)] ^= np.uint32(1) << np.uint32(rng.integers(32))
        damaged = {**values, port: Chunked(value.sizes, words)}
        answers = [outcome(run, damaged, record, x) for run in runs]
        assert answers[0] == answers[1], port
        refused += answers[0] is None
    assert refused > 5


def outcome(run: Executable, values: Mapping[Any, Any], record: RunRecord, x: NDArray[Any]) -> bytes | None:
    """What `run` decodes, or None where it finds damage."""
    try:
        return bytes(run.inverse(values, RunRecord(record.state), x.size, 1, poisoned(x.size, x.dtype)).tobytes())
    except ArchiveError:
        return None


# -- a coder that tells its cost only ------------------------------------------------------------------------

POLICY = """#pragma once
#include <briquette_bitpack/cuda/plainrate.cuh>
namespace acme_costs {
struct CostOnly : briquette_bitpack::PlainRate {
 private:
  template <class T> using Sum = T;  // nobody can use it
};
}  // namespace acme_costs
"""


@dataclass(frozen=True)
class CostOnly(PlainRate):
    """Plain rate, whose policy cannot be asked code by code."""

    name: ClassVar[str] = "cost-only"

    def fused_op(self) -> FusedOp:
        return FusedOp("warp-register", "CostOnly", "acme_costs/cuda/costs.cuh")


@pytest.fixture
def cost_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[CostOnly]:
    package = tmp_path / "acme_costs"
    (package / "cuda").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "cuda" / "costs.cuh").write_text(POLICY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_costs", raising=False)
    return CostOnly


@pytest.mark.parametrize("dtype", ["int16", "uint32", "int64"])
def test_a_coder_that_tells_its_cost_only_is_chosen_by(dtype: str, cost_only: type[CostOnly], rng: np.random.Generator) -> None:
    for carried in (True, False):
        pipe = connected([stage("adaptive-lorenzo", tile=128), cost_only(segment=64)], carried)
        runs = executables(pipe, dtype, carried)
        other = Chain(dtype, "", 128, segment=64, carried=carried).pipeline().executable(dtype, "host", "auto")
        for n in (*range(1, 300, 11), *EDGES):
            x = field(rng, n, dtype)
            assert_same_sinks(runs, x, None)
            made, plain = (list(run.forward(x, None, 1)[1].values()) for run in (runs[-1], other))
            assert all(np.array_equal(a.words, b.words) for a, b in zip(made, plain, strict=True))

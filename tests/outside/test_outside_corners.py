"""Corners of the policy contract that no pack here uses: a transform with parameters, a coder without metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import briquette as bq
from briquette import bounds
from briquette.harness import GroupRun
from briquette.params import Scalar
from briquette.planner import chain_members
from briquette.ports import Chunked, PortType, PortValue, Scratch
from briquette.record import RunRecord
from briquette.selection import choose_target
from briquette.stage import Scope
from briquette_warp.chain import Composition
from briquette_warp.emulated import EmulatedProgram

HEADER = """
#pragma once
#include <briquette_warp/cuda/group.cuh>
namespace acme_corners {
struct Shift {
  struct Params { uint8_t odd; int64_t by; };
  template <class T, class G, int E> __device__ static void forward(T (&c)[E], G, const Params &p) {
    for (int m = 0; m < E; m++) c[m] = T(briquette::unsigned_of<T>(c[m]) + briquette::unsigned_of<T>(p.by));
  }
  template <class T, class G, int E> __device__ static void inverse(T (&c)[E], G, const Params &p) {
    for (int m = 0; m < E; m++) c[m] = T(briquette::unsigned_of<T>(c[m]) - briquette::unsigned_of<T>(p.by));
  }
};
struct Words {
  static constexpr uint32_t meta_bytes = 0;
  template <class T, int S> __device__ static uint32_t size(uint32_t) { return S; }
  template <class T, int E, class G> __device__ static uint32_t cost(const T (&)[E], G) { return 0; }
  template <class T, int E, class G> __device__ static void pack(const T (&c)[E], uint32_t, G g, uint32_t *out) {
    for (int m = 0; m < E; m++) out[g.rank() * E + m] = uint32_t(c[m]);
  }
  template <class T, int E, class G> __device__ static void decode(uint32_t, const uint32_t *in, T (&c)[E], G g) {
    for (int m = 0; m < E; m++) c[m] = T(in[g.rank() * E + m]);
  }
};
}
"""
INCLUDE = "acme_corners/cuda/corners.cuh"


@dataclass(frozen=True)
class Shift(bq.Stage):
    """Add a constant; its parameter struct has padding between the fields."""

    by: int = -3

    name: ClassVar[str] = "shift"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        return {"out": np.asarray(inputs["in"]) + np.int32(self.by)}

    def fusion_spec(self) -> bq.FusionSpec:
        return bq.FusionSpec(bq.FusionAccess.ELEMENTWISE)

    def fused_op(self) -> bq.FusedOp:
        layout = bq.ParamStruct((("odd", "uint8"), ("by", "int64")), policy_struct="Params")
        return bq.FusedOp("warp-register", "Shift", INCLUDE, layout)

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        return {"odd": 1, "by": self.by}


@dataclass(frozen=True)
class Words(bq.Stage):
    """Write every code as a word, whole segments of 32, without any metadata."""

    name: ClassVar[str] = "words"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": PortType(inputs["in"].dtype, "chunked")}

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        return -(-chunk // 32) * 32

    def fusion_spec(self) -> bq.FusionSpec:
        return bq.FusionSpec(bq.FusionAccess.SEGMENT_CODEC, 32)

    def fused_op(self) -> bq.FusedOp:
        return bq.FusedOp("warp-register", "Words", INCLUDE)


@pytest.fixture
def _header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = choose_target("host")
    assert host is not None
    reason = host.unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")
    (tmp_path / "acme_corners" / "cuda").mkdir(parents=True)
    (tmp_path / "acme_corners" / "__init__.py").touch()
    (tmp_path / INCLUDE).write_text(HEADER)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("_header")
@pytest.mark.parametrize("n", [8192 * 3, 8192 * 3 - 31, 8192 + 1])
def test_padded_params_and_no_metadata(n: int) -> None:
    """What precedes a chunk's words, the last word of another chunk, is no metadata to clear."""
    run = bq.chain(Shift(by=-7), Words()).executable("int32", "host", "auto")
    assert run.plan.forward.groups == run.plan.inverse.groups == (("shift", "words"),)
    codes = np.arange(n, dtype=np.int32) * 3
    record, values = run.forward(codes, None, 1)
    coded = values["words", "out"]
    assert isinstance(coded, Chunked)
    assert coded.sizes.tolist() == [-(-min(8192, n - at) // 32) * 32 for at in range(0, n, 8192)]
    expected = np.pad(codes - np.int32(7), (0, -n % 32)).view(np.uint32)
    assert np.array_equal(coded.words, expected)
    back: Any = run.inverse(values, record, n, 1, np.full(n, -1, np.int32))
    assert np.array_equal(back, codes)


@pytest.mark.usefixtures("_header")
@pytest.mark.parametrize(("eb", "mode"), [(1e-2, "abs"), (1e-3, "rel")])
def test_parameters_behind_a_head_that_resolves_its_own_on_a_device(eb: float, mode: str) -> None:
    """The CUDA kernels, in the emulator: the block of parameters holds those of all members, not only the head's."""
    pipe = bq.chain("linear-quantizer", Shift(by=1 << 20), "plain-rate")
    x = np.sin(np.arange(9000) / 40).astype(np.float32)
    staged = pipe.executable("float32", "numpy", "off")
    _, expected = staged.forward(x, bq.Bound(eb, mode), 1)
    plan, target = staged.plan, choose_target("host")
    assert target is not None
    programs = {}
    for direction in ("forward", "inverse"):
        members = tuple(chain_members(plan.graph, plan.types, plan.graph.order, direction))
        programs[direction] = EmulatedProgram(Composition(members, plan.chunk), direction, target)
    chunks, record = -(-x.size // plan.chunk), RunRecord()
    sink = Scratch(np.zeros(chunks, np.uint32), np.zeros(chunks * 2 * plan.chunk, np.uint32))
    values = programs["forward"].forward(x, GroupRun(record, x.size, plan.chunk, 1, bq.Bound(eb, mode), lambda: sink))
    coded, reference = values["plain-rate", "out"], expected["plain-rate", "out"]
    assert isinstance(coded, Chunked)
    assert isinstance(reference, Chunked)
    assert np.array_equal(coded.words, reference.words)
    out = np.full_like(x, -77)
    programs["inverse"].inverse(values, GroupRun(record, x.size, plan.chunk, 1, out=out))
    assert bounds.compare(x, out, bounds.resolve(bq.Bound(eb, mode), x)).ok

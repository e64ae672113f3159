"""Policies in the element form, plain CUDA: fused on `host` in the lane emulator, mixed with ours, the same bytes everywhere."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import bounds
from briquette.errors import ArchiveError, PipelineError
from briquette.params import Scalar
from briquette.ports import Chunked, PortType, PortValue
from briquette.selection import choose_target
from briquette.stage import Scope

Chain = tuple[tuple[str, Mapping[str, Any]], ...]

PLAIN: Chain = (("linear-quantizer", {}), ("warp-difference", {}), ("warp-planes", {}))
CHAINS: list[Chain] = [
    PLAIN,
    (("linear-quantizer", {}), ("warp-difference", {}), ("warp-lift", {}), ("warp-planes", {"elems_per_lane": 1})),
    (("linear-quantizer", {}), ("warp-difference", {"elems_per_lane": 4}), ("plain-rate", {})),
    (("power2-quantizer", {}), ("warp-difference", {"elems_per_lane": 32}), ("zigzag", {}), ("byte-coder", {})),
    (("linear-quantizer", {}), ("lorenzo-1d", {}), ("warp-planes", {"elems_per_lane": 16})),
    (
        ("linear-quantizer", {}),
        ("warp-lift", {}),
        ("difference2", {"region": 64}),
        ("warp-lift", {}),
        ("warp-planes", {"elems_per_lane": 2}),
    ),
    (
        ("linear-quantizer", {"code_type": "int32"}),
        ("warp-difference", {"elems_per_lane": 1}),
        ("adaptive-bitplane", {"segment": 1024}),
    ),
]
#: how a pipeline may run: target, fusion mode
WAYS = [("numpy", "off"), ("host", "off"), ("host", "auto")]
EB = 2e-3

pytestmark = pytest.mark.usefixtures("outside")


@pytest.fixture(autouse=True)
def _needs_a_compiler(outside: Any) -> None:
    host = choose_target("host")
    assert host is not None
    reason = host.unavailable()
    if reason:
        pytest.skip(f"the host target cannot run here: {reason}")


def pipeline(chain: Chain) -> bq.Pipeline:
    lines = []
    for name, params in chain:
        lines += ["[[stage]]", f'use = "{name}"', "[stage.params]", *(f"{k} = {v!r}" for k, v in params.items())]
    return bq.Pipeline.from_toml("\n".join(lines).replace("'", '"'))


def field(n: int, dtype: str = "float32") -> NDArray[Any]:
    """Return a smooth field with a rough part and, where it is long enough, values that no code holds."""
    at = np.arange(n)
    x = (np.sin(at / 40.0) + np.where(at % 1000 > 900, np.sin(at * 1.7), 0.0) - 0.3).astype(dtype)
    if n > 300:
        x[[7, 130, 131, 299]] = np.nan, np.inf, -np.inf, 3e37
    return x


def same_everywhere(pipe: bq.Pipeline, x: NDArray[Any], eb: float = EB, mode: str = "abs") -> bytes:
    """Compress and decompress in every way, assert bytes, bits and outliers the same, and return the archive."""
    runs = {way: pipe.run(x, eb, mode, target=way[0], fusion=way[1]) for way in WAYS}
    blobs = {bytes(run.archive) for run in runs.values()}
    assert len(blobs) == 1, {way: len(run.archive) for way, run in runs.items()}
    assert len({run.outliers for run in runs.values()}) == 1
    blob = blobs.pop()
    found = {bq.decompress(blob, target=t, fusion=f, out=np.full_like(x, -77.0)).tobytes() for t, f in WAYS}
    assert len(found) == 1
    report = bounds.compare(x, np.frombuffer(found.pop(), x.dtype), bounds.resolve(bq.Bound(eb, mode), x))
    assert report.ok, report
    return blob


@pytest.mark.parametrize("chain", CHAINS)
def test_chains_fuse_into_one_launch_each_way(chain: Chain) -> None:
    pipe = pipeline(chain)
    plan, staged = pipe.plan("float32", "host", "auto"), pipe.plan("float32", "host", "off")
    for fused, apart in ((plan.forward, staged.forward), (plan.inverse, staged.inverse)):
        assert (fused.groups, fused.launches, fused.reasons) == ((tuple(pipe.graph.nodes),), 1, ())
        assert (apart.groups, apart.launches) == ((), len(chain))


@pytest.mark.parametrize("chain", CHAINS)
def test_bytes_and_values_are_the_same_in_every_way(chain: Chain) -> None:
    pipe = pipeline(chain)
    for n in (1024, 8191, 20_011):
        for eb, mode in ((EB, "abs"), (1e-3, "rel")):
            assert not bq.info(same_everywhere(pipe, field(n), eb, mode))["raw"]


def test_every_small_count_and_the_edges_of_chunks() -> None:
    pipe = pipeline(PLAIN)
    for n in [*range(1, 601), *(k * 8192 + d for k in (1, 2) for d in (-257, -256, -33, -1, 0, 1, 31, 255, 257))]:
        x = field(n)
        run = pipe.run(x, EB, target="host", fusion="auto")
        assert run.archive == pipe.run(x, EB, target="numpy", fusion="off").archive, n
        back = bq.decompress(run.archive, target="host", fusion="auto", out=np.full_like(x, -77.0))
        assert back.tobytes() == bq.decompress(run.archive, target="numpy").tobytes(), n


def test_the_payload_is_that_of_the_same_coder_in_the_other_form() -> None:
    """warp-difference and warp-planes are lorenzo-1d and adaptive-bitplane, written anew."""
    x = field(20_011)
    ours = pipeline((PLAIN[0], ("lorenzo-1d", {"region": 256}), ("adaptive-bitplane", {"segment": 256})))
    theirs = pipeline(PLAIN).executable("float32", "host", "auto").forward(x, bq.Bound(EB), 1)[1]["warp-planes", "out"]
    expected = ours.executable("float32", "numpy", "auto").forward(x, bq.Bound(EB), 1)[1]["adaptive-bitplane", "out"]
    assert isinstance(theirs, Chunked)
    assert isinstance(expected, Chunked)
    assert (theirs.sizes.tolist(), theirs.words.tobytes()) == (expected.sizes.tolist(), expected.words.tobytes())


@pytest.mark.parametrize("chain", [PLAIN, CHAINS[2], PLAIN[:2]])
def test_codes_that_float32_cannot_carry(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above 2**21 a value in float32 does not lead back to its code: the run is done by the NumPy forms."""
    reference, ran = importlib.import_module("briquette_warp.reference"), []
    numpy_forms = reference.forward
    monkeypatch.setattr(reference, "forward", lambda *given: ran.append(given) or numpy_forms(*given))
    x = (3.3 * np.sin(np.arange(20_011) / 3000.0)).astype(np.float32)
    x[500] = np.nan
    pipe = pipeline(chain)
    for eb, carried in ((1e-6, True), (5e-7, False), (1e-9, False)):
        blob = same_everywhere(pipe, x, eb)
        assert bool(ran) is not carried
        assert len(chain) == 2 or not bq.info(blob)["raw"]
        ran.clear()


def test_bounds_at_the_ends_of_float32() -> None:
    pipe = pipeline(PLAIN)
    mild = np.random.default_rng(5).normal(size=3000).astype(np.float32)
    wide = np.concatenate([mild * np.float32(1e-37), np.zeros(9000, np.float32)])
    for x, eb, mode in [
        (wide, 1e-40, "abs"),
        (mild, 1e38, "abs"),
        (np.full(3000, 0.1, np.float32), 1e-3, "rel"),
        (np.full(3000, np.nan, np.float32), 1e-3, "abs"),
        (np.concatenate([np.random.default_rng(3).integers(0, 1 << 32, 3000, np.uint32).view(np.float32), wide]), 1e30, "abs"),
    ]:
        same_everywhere(pipe, x, eb, mode)


def test_a_float64_field_with_int32_codes() -> None:
    pipe = pipeline((("linear-quantizer", {"code_type": "int32"}), *PLAIN[1:]))
    same_everywhere(pipe, field(9000, "float64"))


@pytest.mark.parametrize(("target", "fusion"), WAYS)
def test_widths_that_no_coder_wrote_are_refused(target: str, fusion: str) -> None:
    x = field(20_000)
    run = pipeline(PLAIN).executable("float32", target, fusion)
    record, values = run.forward(x, bq.Bound(EB), 1)
    coded = values["warp-planes", "out"]
    assert isinstance(coded, Chunked)
    for word in (0, int(coded.sizes[0])):
        words = coded.words.copy()
        words[word] ^= np.uint32(0x21)
        with pytest.raises(ArchiveError):
            run.inverse({**values, ("warp-planes", "out"): Chunked(coded.sizes, words)}, record, x.size, 1, np.empty_like(x))


def test_presets_and_toml_round_trips(outside: Any) -> None:
    pipe = bq.Pipeline.from_preset("warp-striped")
    assert pipe.plan("float32", "host", "auto").forward.launches == 1
    same_everywhere(pipe, field(9000))
    for chain in CHAINS:
        assert bq.Pipeline.from_toml(pipeline(chain).to_toml()) == pipeline(chain)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "report"), [(None, "clean"), ("no barrier behind the values", "ThreadSanitizer: data race")])
def test_races_are_found(fault: str | None, report: str, repo_root: Path) -> None:
    host: Any = choose_target("host")
    compiler = host.describe()["command"].split()
    found = subprocess.run([*compiler, "-print-file-name=libtsan.so"], text=True, capture_output=True, check=False).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip(f"libtsan.so is not there for {compiler[0]}")
    command = [sys.executable, str(repo_root / "harnesses/warp/tests/sanitized_runs.py"), "thread", "warp-striped"]
    variables = {
        **os.environ,
        "LD_PRELOAD": found,
        "PYTHONPATH": str(Path(importlib.import_module("acme_warp").__file__ or "").parents[1]),
    }
    done = subprocess.run(
        [*command, *filter(None, [fault])], env=variables, text=True, capture_output=True, check=False, timeout=600
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel's address layout")
    assert report in done.stdout + done.stderr
    assert (done.returncode == 0) is (fault is None)


# -- what no pack here declares: an ELEMENTWISE op with parameters, and mistakes ------------------------------------------

HEADER = """
#pragma once
#include <briquette_warp/cuda/policy.cuh>
namespace acme_elements {
struct Add {
  struct Params { int by; };
  template <int EPL> __device__ static void apply(int (&d)[EPL], uint32_t, const Params &p) { add(d, unsigned(p.by)); }
  template <int EPL> __device__ static void invert(int (&d)[EPL], uint32_t, const Params &p) { add(d, 0u - unsigned(p.by)); }
  template <int EPL> __device__ static void add(int (&d)[EPL], unsigned by) {
    for (int m = 0; m < EPL; m++) d[m] = int(unsigned(d[m]) + by);
  }
};
struct Parted {
  template <int EPL> __device__ static void apply(int (&d)[EPL], uint32_t lane) {
    if (lane < 7) d[0] += __shfl_sync(0xffffffffu, d[0], 0);
  }
  template <int EPL> __device__ static void invert(int (&d)[EPL], uint32_t) {}
};
}
"""
INCLUDE = "acme_elements/cuda/elements.cuh"


@dataclass(frozen=True)
class Add(bq.Stage):
    """Add a constant, or whatever else the declaration says."""

    by: int = -3
    op: str = "Add"
    span: int = 1
    geometry: tuple[tuple[str, int], ...] = (("element_form", 1),)
    names: tuple[str, ...] = ("by",)

    name: ClassVar[str] = "add"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        return {"out": np.asarray(inputs["in"]) + np.int32(self.by)}

    def fusion_spec(self) -> bq.FusionSpec:
        return bq.FusionSpec(bq.FusionAccess.ELEMENTWISE if self.span == 1 else bq.FusionAccess.REGION_LOCAL, self.span)

    def fused_op(self) -> bq.FusedOp:
        layout = bq.ParamStruct(
            tuple((name, "float32" if name == "inv2eb" else "int32") for name in self.names), policy_struct="Params"
        )
        return bq.FusedOp("warp-register", self.op, INCLUDE, layout if self.names else None, dict(self.geometry))

    def fused_params(self, state: Mapping[str, Scalar], types: Mapping[str, PortType]) -> Mapping[str, Scalar]:
        return dict.fromkeys(self.names, self.by)


@pytest.fixture
def _header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_elements" / "cuda").mkdir(parents=True)
    (tmp_path / "acme_elements" / "__init__.py").touch()
    (tmp_path / INCLUDE).write_text(HEADER)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("_header")
@pytest.mark.parametrize("elements", [(), (("elems_per_lane", 4),)])
def test_an_elementwise_op_with_parameters(elements: tuple[tuple[str, int], ...]) -> None:
    planes = importlib.import_module("acme_warp.planes").WarpPlanes
    stage = Add(by=41, geometry=(("element_form", 1), *elements))
    codes = np.arange(9000, dtype=np.int32) * 3 - 5000
    values = {}
    for target in ("numpy", "host"):
        run = bq.chain(stage, planes()).executable("int32", target, "auto")
        record, made = run.forward(codes, None, 1)
        values[target] = made["warp-planes", "out"]
        if target == "host":
            assert run.plan.forward.groups == run.plan.inverse.groups == (("add", "warp-planes"),)
            back: Any = run.inverse(made, record, codes.size, 1, np.full(codes.size, -1, np.int32))
            assert np.array_equal(back, codes)
    assert values["host"].words.tobytes() == values["numpy"].words.tobytes()  # type: ignore[union-attr]


@pytest.mark.usefixtures("_header")
def test_lanes_that_part_are_an_error_with_the_operation_s_name() -> None:
    run = bq.chain(Add(op="Parted", names=(), span=32)).executable("int32", "host", "auto")
    with pytest.raises(PipelineError, match=r"thread 0 waits in __shfl_sync of mask ffffffff for thread 7, which ") as caught:
        run.forward(np.arange(9000, dtype=np.int32), None, 1)
    assert "breaks the rules of CUDA" in str(caught.value)


@pytest.mark.parametrize(
    ("stage", "dtype", "reason"),
    [
        (Add(span=96), "int32", "a block in the element form is 32 elements times a power of two up to 32, not 96"),
        (Add(span=2048), "int32", "a block in the element form is 32 elements times a power of two up to 32, not 2048"),
        (Add(), "int64", "it reads int64; policies in the element form compute with 32-bit codes"),
        (
            Add(span=64, geometry=(("element_form", 1), ("elems_per_lane", 4))),
            "int32",
            "elems_per_lane=4 gives blocks of 128 elements",
        ),
        (Add(geometry=(("element_form", 1), ("elems_per_lane", 3))), "int32", "elems_per_lane=3 is no power of two up to 32"),
        (Add(names=("by", "inv2eb"), span=32), "int32", "its parameter inv2eb must come first and be a float32"),
        (Add(names=("inv2eb",)), "int32", "it is a predictor, which is REGION_LOCAL and not ELEMENTWISE"),
        (Add(geometry=(("element_form", 1), ("head", 1))), "int32", "a quantizer head has no element form"),
    ],
)
def test_what_is_refused_says_why(stage: Add, dtype: str, reason: str) -> None:
    plan = bq.chain(stage, Add(by=1, span=32)).plan(dtype, "host", "auto")
    assert plan.forward.groups == ()
    assert reason in plan.forward.reasons[0].reason


@pytest.mark.parametrize("amplitude", [1.0, 1e6])  # with the larger, codes that float32 does not hold: by the NumPy forms
def test_behind_a_layout(amplitude: float) -> None:
    pipe = pipeline(
        (
            ("linear-quantizer", {}),
            ("tile-order", {}),
            ("warp-difference", {"elems_per_lane": 4}),
            ("tiled-lorenzo", {}),
            ("warp-planes", {"elems_per_lane": 2}),
        )
    )
    x = (np.cumsum(np.random.default_rng(0).standard_normal(131 * 157)) * amplitude).reshape(131, 157).astype(np.float32)
    x[3, :9], x[77, 3] = np.nan, np.inf
    assert pipe.plan(x, target="host", fusion="auto").forward.launches == 1
    made = set()
    for target, fusion in WAYS:
        run = pipe.executable("float32", target, fusion)
        record, values = run.forward(x.reshape(-1), bq.Bound(0.05), 1, shape=x.shape)
        out = np.empty(x.size, np.float32)
        run.inverse(values, record, run.lengths.stretch(x.shape), 1, out)
        words = b"".join(value.words.tobytes() for value in values.values() if isinstance(value, Chunked))
        made.add((out.tobytes(), words))
        assert bounds.compare(x.reshape(-1), out, 0.05).ok
    assert len(made) == 1

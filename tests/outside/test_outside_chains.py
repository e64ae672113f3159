"""Stages of two packs from outside, alone and mixed with ours: fused on `host` both ways, the same bytes everywhere."""

from __future__ import annotations

import importlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import bounds
from briquette.errors import ArchiveError, CompileError
from briquette.ports import Chunked
from briquette.selection import choose_target

Chain = tuple[tuple[str, Mapping[str, Any]], ...]

SMOOTH: Chain = (("linear-quantizer", {}), ("difference2", {}), ("plain-rate", {}))
BOTH: Chain = (("power2-quantizer", {}), ("difference2", {}), ("byte-coder", {}))
CHAINS: list[Chain] = [
    SMOOTH,
    BOTH,
    (("linear-quantizer", {"code_type": "int16"}), ("difference2", {"region": 32}), ("zigzag", {}), ("byte-coder", {})),
    (("power2-quantizer", {}), ("lorenzo-1d", {}), ("plain-rate", {})),
    (("power2-quantizer", {}), ("lorenzo-1d", {}), ("zigzag", {}), ("byte-coder", {"center": 5})),
    (("power2-quantizer", {}), ("difference2", {}), ("lorenzo-1d", {}), ("adaptive-bitplane", {"segment": 64})),
]
#: a region of one element: what is predicted from nothing stays as it is
ONE: Chain = (("linear-quantizer", {}), ("lorenzo-1d", {"region": 1}), ("difference2", {"region": 1}), ("plain-rate", {}))
FLOAT64: Chain = (("linear-quantizer", {}), ("difference2", {}), ("byte-coder", {}))
#: how a pipeline may run: target, fusion mode
WAYS = [("numpy", "off"), ("numpy", "auto"), ("host", "off"), ("host", "auto")]
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
    x = np.sin(at / 40.0) + np.where(at % 1000 > 900, np.sin(at * 1.7), 0.0) - 0.3
    x = x.astype(dtype)
    if n > 300:
        x[[7, 130, 131, 299]] = np.nan, np.inf, -np.inf, 3e37
    return x


def archives(pipe: bq.Pipeline, x: NDArray[Any], eb: float = EB, mode: str = "abs", raw: bool = False) -> bytes:
    """Compress in every way, assert that the bytes are the same, and return them."""
    made, outliers = {}, set()
    for target, fusion in WAYS:
        result = pipe.run(x, eb, mode, target=target, fusion=fusion)
        assert result.raw is raw
        made[target, fusion] = bytes(result.archive)
        outliers.add(result.outliers)
    assert len(outliers) == 1
    assert len(set(made.values())) == 1, {way: len(blob) for way, blob in made.items()}
    return made["host", "auto"]


def restored(blob: bytes, like: NDArray[Any]) -> NDArray[Any]:
    """Decompress in every way into poisoned memory, assert that the bits are the same, and return the values."""
    found = []
    for target, fusion in WAYS:
        out = np.full_like(like, -77.0)
        found.append(bq.decompress(blob, target=target, fusion=fusion, out=out).tobytes())
    assert len(set(found)) == 1
    return np.frombuffer(found[0], like.dtype)


def assert_kept(x: NDArray[Any], y: NDArray[Any], eb: float) -> None:
    report = bounds.compare(x, y, eb)
    assert report.ok, report


@pytest.mark.parametrize("chain", CHAINS)
def test_chains_fuse_into_one_launch_each_way(chain: Chain) -> None:
    names = tuple(name for name, _ in chain)
    plan = pipeline(chain).plan("float32", "host", "auto")
    for direction in (plan.forward, plan.inverse):
        assert direction.groups == (names,)
        assert direction.launches == 1
        assert direction.reasons == ()
        assert {node for node, _ in direction.elided} == set(names[:-1])
        assert {b.port for b in direction.buffers} == {("", "in"), (names[0], "outliers"), (names[-1], "out")}


@pytest.mark.parametrize("chain", CHAINS)
def test_staged_plans_launch_every_stage_alone(chain: Chain) -> None:
    plan = pipeline(chain).plan("float32", "host", "off")
    for direction in (plan.forward, plan.inverse):
        assert direction.groups == ()
        assert direction.launches == len(chain)
        assert [step.kind for step in direction.steps] == ["kernel"] * len(chain)


@pytest.mark.parametrize("chain", CHAINS)
def test_bytes_and_values_are_the_same_in_every_way(chain: Chain) -> None:
    x = field(20_011)
    blob = archives(pipeline(chain), x)
    assert_kept(x, restored(blob, x), EB)


def test_float64_fields_and_int64_codes() -> None:
    x = field(20_011, "float64")
    pipe = pipeline(FLOAT64)
    assert pipe.plan(x, "host", "auto").forward.groups == (tuple(name for name, _ in FLOAT64),)
    assert_kept(x, restored(archives(pipe, x, 1e-13), x), 1e-13)


def test_regions_of_one_element_change_nothing() -> None:
    x = field(20_011)
    blob = archives(pipeline(ONE), x)
    assert_kept(x, restored(blob, x), EB)
    plain = archives(pipeline((ONE[0], ONE[-1])), x)
    assert [s["payload_bytes"] for s in bq.info(blob)["segments"]] == [s["payload_bytes"] for s in bq.info(plain)["segments"]]


@pytest.mark.parametrize("dtype", ["int16", "uint32", "int64"])
def test_integer_fields_need_no_quantizer_and_come_back_exactly(dtype: str) -> None:
    x = np.round(1000 * field(20_011, "float64").clip(-30, 30)[300:]).astype("int64").astype(dtype)
    pipe = pipeline(BOTH[1:])
    assert pipe.plan(x, "host", "auto").forward.groups == (("difference2", "byte-coder"),)
    blobs = [bytes(pipe.compress(x, target=target, fusion=fusion)) for target, fusion in WAYS]
    assert len(set(blobs)) == 1
    assert restored(blobs[0], x).tobytes() == x.tobytes()


@pytest.mark.parametrize("chain", [SMOOTH, BOTH])
def test_thread_counts_do_not_change_bytes(chain: Chain) -> None:
    pipe, x = pipeline(chain), field(60_000)
    blobs = [bytes(pipe.compress(x, EB, target="host", fusion="auto", threads=threads)) for threads in (1, 2, 5)]
    assert len(set(blobs)) == 1
    values = [bq.decompress(blobs[0], target="host", threads=threads).tobytes() for threads in (1, 2, 5)]
    assert len(set(values)) == 1


@pytest.mark.parametrize("chain", [SMOOTH, BOTH])
def test_every_residue_of_the_span(chain: Chain) -> None:
    pipe = pipeline(chain)
    span = math.lcm(*(stage.fusion_spec().span for stage in pipe.graph.nodes.values()))
    assert span == 128
    for n in [*range(1024, 1024 + span), 8191, 8192, 8193, 8192 + 63, 3 * 8192 - 65]:
        x = field(n)
        assert_kept(x, restored(archives(pipe, x), x), EB)


@pytest.mark.parametrize("chain", [SMOOTH, BOTH])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_tiny_fields_are_held_raw(chain: Chain, n: int) -> None:
    x = field(n)
    assert restored(archives(pipeline(chain), x, raw=True), x).tobytes() == x.tobytes()


def specials() -> Iterator[tuple[str, NDArray[np.float32], float, str]]:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 3000, np.uint32).view(np.float32)
    mild = rng.normal(size=3000).astype(np.float32)
    yield "any bits, wide bound", np.concatenate([bits, np.zeros(9000, np.float32)]), 1e30, "abs"
    yield "any bits, range-relative", np.concatenate([bits, np.zeros(9000, np.float32)]), 1e-2, "rel"
    yield "bound below the smallest step", np.concatenate([mild * np.float32(1e-37), np.zeros(20_000, np.float32)]), 1e-40, "abs"
    yield "bound above all values", mild, 1e38, "abs"
    yield "bound is a power of two", np.repeat(np.arange(-500, 500, dtype=np.float32) / 8, 4), 0.125, "abs"
    yield "constant, range-relative", np.full(3000, 0.1, np.float32), 1e-3, "rel"
    yield "no finite value", np.full(3000, np.nan, np.float32), 1e-3, "abs"


@pytest.mark.parametrize(("x", "eb", "mode"), [pytest.param(*case[1:], id=case[0]) for case in specials()])
def test_the_outside_quantizer_keeps_its_bound_on_hard_input(x: NDArray[np.float32], eb: float, mode: str) -> None:
    blob = archives(pipeline(BOTH), x, eb, mode)
    assert_kept(x, restored(blob, x), bounds.resolve(bq.Bound(eb, mode), x))


def test_the_outside_quantizer_takes_the_largest_power_of_two() -> None:
    pipe = pipeline(BOTH)
    for eb, step in ((0.1, 0.125), (0.25, 0.5), (np.nextafter(0.25, 0), 0.25), (3.0, 4.0)):
        assert pipe.run(field(2000), eb).record.state["power2-quantizer"]["quant_step"] == step


def test_two_packs_share_a_helper_name_in_one_translation_unit(outside_sources: Any) -> None:
    """What the fusion of both shows is worth something: their headers do define one name each of its own."""
    texts = [path.read_text() for source in outside_sources for path in source.rglob("*.cuh")]
    assert sum(bool(re.search(r"\bT minus\(T a, T b\) \{", text)) for text in texts) == 2
    plan = pipeline(BOTH).plan("float32", "host", "auto")
    assert (plan.forward.launches, plan.inverse.launches) == (1, 1)


def test_presets_and_toml_round_trips(outside: Any) -> None:
    assert {"second-order", "byte-granular"} <= set(outside.presets())
    for name in ("second-order", "byte-granular"):
        pipe = bq.Pipeline.from_preset(name)
        assert pipe.plan("float32", "host", "auto").forward.launches == 1
        assert_kept(field(9000), restored(archives(pipe, field(9000)), field(9000)), EB)
    for chain in CHAINS:
        assert bq.Pipeline.from_toml(pipeline(chain).to_toml()) == pipeline(chain)


def test_a_struct_that_differs_from_its_declaration_does_not_compile(monkeypatch: pytest.MonkeyPatch, outside: Any) -> None:
    module = importlib.import_module("acme_coder.quantizer")
    fields = (("step", "float32"), ("bound", "float32"), ("inverse", "float32"), ("fill", "int32"))
    monkeypatch.setattr(module, "_PARAMS", bq.ParamStruct(fields, policy_struct="Params"))
    with pytest.raises(CompileError, match=r"field (bound|inverse) differs from the declaration") as caught:
        pipeline(BOTH).compress(field(5000), EB, target="host", fusion="auto")
    assert "acme-coder" in str(caught.value)


@pytest.mark.parametrize(("target", "fusion"), WAYS)
def test_widths_that_no_coder_wrote_are_refused(target: str, fusion: str) -> None:
    x = field(20_000)
    run = pipeline(BOTH).executable("float32", target, fusion)
    record, values = run.forward(x, bq.Bound(EB), 1)
    coded = values["byte-coder", "out"]
    assert isinstance(coded, Chunked)
    for word, mask in itertools.product((0, int(coded.sizes[0])), (0x05, 0x0500_0000)):
        words = coded.words.copy()
        words[word] |= np.uint32(mask)
        damaged = {**values, ("byte-coder", "out"): Chunked(coded.sizes, words)}
        with pytest.raises(ArchiveError):
            run.inverse(damaged, record, x.size, 1, np.empty_like(x))

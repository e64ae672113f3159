"""The CUDA target makes the CPU's archives and reconstructions, staged and fused: real fields, counts, specials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery
from briquette.ports import numpy_dtype

pytestmark = pytest.mark.gpu

PRESETS = ("fast", "planes", "zigzag", "adaptive")
NARROW = ("float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NODES = {
    "fast": ("linear-quantizer", "lorenzo-1d", "plain-rate"),
    "planes": ("linear-quantizer", "lorenzo-1d", "adaptive-bitplane"),
    "zigzag": ("linear-quantizer", "lorenzo-1d", "zigzag", "adaptive-bitplane"),
    "adaptive": ("linear-quantizer", "adaptive-lorenzo", "plain-rate"),
}
#: kernels when nothing is fused: a selector, and a coder that keeps its tiles, run as NumPy then
STAGED = {preset: len(nodes) for preset, nodes in NODES.items()} | {"adaptive": 1}


def assert_same(x: np.ndarray[Any, Any], eb: float | None, mode: str, pipeline: Any, fill_value: Any = None) -> bytes:
    """Compress and decompress on numpy and on cuda, staged and fused; return the archive."""
    archive = bytes(bq.compress(x, eb, mode, pipeline=pipeline, target="numpy", fill_value=fill_value))
    expected = bq.decompress(archive, target="numpy")
    for fusion in ("auto", "off"):
        made = bq.compress_run(x, eb, mode, pipeline=pipeline, target="cuda", fusion=fusion, fill_value=fill_value)
        assert made.archive == archive, f"fusion {fusion}: {len(made.archive)} bytes, not {len(archive)}"
        out = np.frombuffer(bytearray(b"\x01" * x.nbytes), x.dtype).reshape(x.shape)
        restored = bq.decompress(archive, target="cuda", fusion=fusion, out=out)
        assert restored.tobytes() == expected.tobytes(), f"fusion {fusion}"
    return archive


@pytest.mark.parametrize("preset", PRESETS)
def test_plans_are_one_launch_each_way(preset: str) -> None:
    plan = bq.Pipeline.from_preset(preset).plan("float32", target="cuda", fusion="auto")
    staged = bq.Pipeline.from_preset(preset).plan("float32", target="cuda", fusion="off")
    assert plan.forward.groups == plan.inverse.groups == (NODES[preset],)
    assert plan.forward.launches == plan.inverse.launches == 1
    assert staged.forward.launches == staged.inverse.launches == STAGED[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_real_fields(preset: str, corpus_field: Any) -> None:
    x = np.load(corpus_field) if not isinstance(corpus_field, np.ndarray) else corpus_field
    for rel in (1e-2, 1e-3, 1e-6):
        archive = assert_same(x, rel, "rel", preset)
        report = bq.verify(archive, x, target="cuda")
        assert report.ok
        assert not bq.info(archive)["raw"]
        eb = bq.info(archive)["state"]["linear-quantizer"]["eb"]
        assert_same(x, eb, "abs", preset)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", PRESETS)
def test_counts(preset: str, dtype: str, rng: np.random.Generator) -> None:
    edges = [k * 8192 + d for k in (1, 2, 3) for d in (-33, -1, 0, 1, 31, 257)]
    for n in [*range(1, 601, 1 if preset == "fast" else 7), *edges, 64 * 8192 - 1, 64 * 8192 + 1, 130 * 8192 + 5]:
        assert_same(np.cumsum(rng.standard_normal(n)).astype(dtype), 1e-3, "rel", preset)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("code_type", ["int16", "int32", "int64"])
def test_code_types(dtype: str, code_type: str, rng: np.random.Generator) -> None:
    text = (
        f'[[stage]]\nuse="linear-quantizer"\n[stage.params]\ncode_type="{code_type}"\n[[stage]]\nuse="lorenzo-1d"\n'
        '[stage.params]\nregion=64\n[[stage]]\nuse="plain-rate"\n[stage.params]\nsegment=64\n'
    )
    pipe = bq.Pipeline.from_toml(text)
    x = np.cumsum(rng.standard_normal(40_001)).astype(dtype)
    x[rng.random(x.size) < 0.003] = np.nan
    for eb in (0.5, 1e-2, 1e-4, 1e-7):
        assert_same(x, eb, "abs", pipe)


@pytest.mark.parametrize("apart", [False, True], ids=["carried", "apart"])
@pytest.mark.parametrize("code_type", ["int16", "int32", "int64"])
def test_selectors(code_type: str, apart: bool, rng: np.random.Generator) -> None:
    """Tiles of one lane and of several, with all coders, transforms in between, modes in the payload and on their own port."""

    def stage(name: str, **params: Any) -> bq.Stage:
        return discovery.registry().stage_class(name).from_parameters(params)

    n = 3 * 8192 + 600
    i = np.arange(n)
    smooth = np.where(i // 700 % 2, 50 + np.cumsum(rng.standard_normal(n)) * 0.05, (i % 900) ** 2 * 1e-4)
    smooth[rng.random(n) < 0.002] = np.nan
    for tile, segment, between in ((32, 32, ()), (64, 32, ("zigzag",)), (256, 32, ()), (256, 64, ("zigzag",)), (1024, 256, ())):
        for coder in ("plain-rate", "adaptive-bitplane"):
            stages = [stage("linear-quantizer", code_type=code_type), stage("adaptive-lorenzo", tile=tile)]
            stages += [*(stage(name) for name in between), stage(coder, segment=segment)]
            pipe = bq.chain(*stages, sides=not apart)
            plan = pipe.plan("float32", target="cuda", fusion="auto")
            assert plan.forward.launches == plan.inverse.launches == 1, plan.explain()
            for count in (300, 8191, 8192, n):
                for dtype in ("float32", "float64"):
                    assert_same(smooth[:count].astype(dtype), 1e-2, "abs", pipe)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outliers_in_every_form(dtype: str, rng: np.random.Generator) -> None:
    n = 3 * 8192 + 77
    base = np.sin(np.arange(n) / 50).astype(dtype)
    for share in (1e-4, 0.01, 0.2, 0.6, 0.99):
        for values in ("nan", "payloads", "large"):
            x = base.copy()
            where = rng.random(n) < share
            if values == "nan":
                x[where] = np.nan
            elif values == "payloads":
                bits = x.view(f"u{x.itemsize}")
                quiet = np.array(np.nan, dtype).view(bits.dtype)
                bits[where] = quiet + rng.integers(0, 1000, int(where.sum())).astype(bits.dtype)
            else:
                x[where] = (rng.standard_normal(int(where.sum())) * 1e30).astype(dtype)
            assert_same(x, 1e-3, "abs", "fast")
    for begin, end in ((0, n), (8191, 8193), (100, 20_000), (n - 1, n)):
        x = base.copy()
        x[begin:end] = -np.inf
        assert_same(x, 1e-2, "rel", "planes")
    assert_same(np.full(n, 3.5, dtype), 1e-3, "rel", "fast")
    assert_same(np.full(n, np.nan, dtype), 1e-3, "rel", "fast")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preset", PRESETS)
def test_point_wise_relative_bounds(preset: str, dtype: str, rng: np.random.Generator) -> None:
    info = np.finfo(dtype)
    for n in (1, 31, 257, 5000, 3 * 8192 + 77):
        x = (np.exp(np.cumsum(rng.normal(0, 0.1, n))) * np.sin(np.arange(n) / 40)).astype(dtype)
        for value in (0.0, -0.0, np.nan, np.inf, info.smallest_subnormal, -info.tiny, info.max, info.min):
            x[rng.integers(0, n, n // 300)] = value
        raw = np.frombuffer(rng.bytes(n * x.itemsize), dtype)
        for eb in (0.9, 1e-2, 1e-5, 1e-12):
            assert_same(x, eb, "pwrel", preset)
            assert_same(np.abs(x) + info.tiny, eb, "pwrel", preset)
            assert_same(raw, eb, "pwrel", preset)
    plan = bq.Pipeline.from_preset(preset).plan(dtype, target="cuda", fusion="auto", mode="pwrel")
    assert plan.forward.groups == plan.inverse.groups == (("log-quantizer", *NODES[preset][1:]),)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["abs", "rel", "pwrel"])
def test_holes_and_fill_values(mode: str, dtype: str, rng: np.random.Generator) -> None:
    kinds = np.array([np.nan, np.inf, 1e20, -9999.0], dtype)
    for n in (1, 31, 257, 5000, 3 * 8192 + 77, 300_000):
        x = (np.cumsum(rng.normal(0, 0.02, n)) + 3).astype(dtype)
        for begin in (0, n - 1, *rng.integers(0, n, n // 100)):
            x[begin : begin + int(rng.choice([1, 30, 300]))] = kinds[rng.integers(4)]
        x.view(f"u{x.itemsize}")[rng.integers(0, n, n // 500)] = kinds.view(f"u{x.itemsize}")[0] + x.itemsize
        for fills in (None, 1e20, (1e20, -9999.0)):
            assert_same(x, 1e-3, mode, "masked", fills)
    plan = bq.Pipeline.from_preset("masked").plan(dtype, target="cuda", fusion="auto", mode=mode)
    assert plan.forward.launches == plan.inverse.launches == 1


def test_narrow_values_kept_aside_in_every_form(rng: np.random.Generator) -> None:
    """16 bits a value: an odd count of them leaves half a word of padding."""
    n = 3 * 8192 + 77
    for dtype in NARROW:
        base = np.sin(np.arange(n) / 50).astype(numpy_dtype(dtype))
        quiet = base[:1].view(np.uint16) | np.uint16(0x7FC0 if dtype == "bfloat16" else 0x7E00)
        for share in (1e-4, 0.01, 0.2, 0.6, 0.99):
            for spread in (1, 30):
                x = base.copy()
                where = rng.random(n) < share
                x.view(np.uint16)[where] = quiet + rng.integers(0, spread, int(where.sum())).astype(np.uint16)
                assert_same(x, 1e-2, "abs", "fast")
        for begin, end in ((0, n), (8191, 8193), (100, 20_000), (n - 1, n)):
            x = base.copy()
            x[begin:end] = -np.inf
            assert_same(x, 1e-2, "rel", "planes")
        assert_same(np.full(n, 3.5).astype(base.dtype), 1e-3, "rel", "fast")
        assert_same(np.arange(65536, dtype=np.uint16).view(base.dtype), 1e-2, "abs", "zigzag")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [*NARROW, *INTEGERS, "bool"])
def test_every_element_type(dtype: str, preset: str, rng: np.random.Generator) -> None:
    edges = [8192 + d for d in (-33, -1, 0, 1, 31)] + [2 * 8192 - 1, 70 * 8192 + 5]
    for n in [*range(1, 71, 3 if preset == "fast" else 23), *edges]:
        walk = np.cumsum(rng.standard_normal(n))
        if dtype == "bool":
            assert_same(walk > 0, None, "abs", preset)
            continue
        if dtype in NARROW:
            for eb, mode in ((1e-2, "abs"), (1e-3, "rel"), (1e-6, "rel")):
                assert_same((walk / 8).astype(numpy_dtype(dtype)), eb, mode, preset)
            continue
        ends = np.iinfo(dtype)
        middle = ends.max / 4 if ends.min == 0 else 0
        x = np.rint(walk / max(1.0, float(np.abs(walk).max())) * (ends.max / 10) + middle).astype(dtype)
        some = x[:: max(n // 3, 1)]
        some[:] = rng.choice(np.array([ends.min, ends.max], dtype), some.size)
        for bound, mode in ((None, "abs"), (0.5, "abs"), (3, "abs"), (1e-3, "rel"), (1e-17, "rel"), (0.7, "rel"), (1e300, "abs")):
            assert_same(x, bound, mode, preset)


def test_narrow_bounds_resolve_on_the_device_as_on_the_host(rng: np.random.Generator) -> None:
    for dtype in NARROW:
        kind = numpy_dtype(dtype)
        every = np.arange(65536, dtype=np.uint16).view(kind)
        every = every[np.isfinite(every)]
        fields = [every, np.linspace(2, 4, 5000).astype(kind), (1e-7 * rng.standard_normal(5000)).astype(kind), every[:300]]
        for x in fields:
            for rel in (0.3, 1e-2, 3e-3, 1e-3, 3e-4, 1e-5, 1e-9, 5e-324):
                assert_same(x, rel, "rel", "fast")
            for eb in (1e4, 1.0, 0.3, 1e-3, 1e-7, 1e-30, 1e-310):
                assert_same(x, eb, "abs", "fast")


def test_rel_resolves_on_the_device_as_on_the_host(rng: np.random.Generator) -> None:
    for dtype in ("float32", "float64"):
        info = np.finfo(dtype)
        cases = [
            rng.standard_normal(5000) * 10.0 ** rng.integers(-30, 30),
            np.array([info.max, -info.max, 0.0] * 100),
            np.array([info.tiny, 0.0, -info.tiny] * 100),
            np.array([info.smallest_subnormal, 0.0] * 200),
            np.r_[[np.nan] * 300, rng.standard_normal(300), [np.inf]],
            1e6 + rng.standard_normal(5000),
        ]
        for x in cases:
            for rel in (1e-1, 1e-3, 1e-7, 1e-12):
                assert_same(x.astype(dtype), rel, "rel", "fast")

"""Every stage with parameters of its own survives TOML: an equal pipeline, the same archives (case I4)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from parity_kit import WAYS, bits, compressed, restored, walk

import briquette as bq
from briquette import discovery

QUANTIZER, LORENZO, CODER = ("linear-quantizer", {}), ("lorenzo-1d", {}), ("plain-rate", {})
FILL = ("forward-fill", {})


class Case(NamedTuple):
    """A stage's parameters, none at its default, the stages before and behind it, and the bound's mode."""

    parameters: dict[str, Any]
    before: tuple[tuple[str, dict[str, Any]], ...] = ()
    behind: tuple[tuple[str, dict[str, Any]], ...] = ()
    mode: str = "abs"
    dtype: str = "float32"


CASES = {
    "linear-quantizer": Case({"code_type": "int16"}, behind=(LORENZO, CODER)),
    "log-quantizer": Case({}, behind=(LORENZO, CODER), mode="pwrel"),
    "masked-quantizer": Case({"code_type": "int64", "fill_values": "1e+20 -9999.0"}, behind=(FILL, LORENZO, CODER)),
    "masked-log-quantizer": Case({"fill_values": "1e+20"}, behind=(FILL, LORENZO, CODER), mode="pwrel"),
    "in-place-quantizer": Case({}, behind=(LORENZO, CODER)),
    "in-place-log-quantizer": Case({}, behind=(LORENZO, CODER), mode="pwrel"),
    "forward-fill": Case({"region": 32}, before=(("masked-quantizer", {}),), behind=(LORENZO, CODER)),
    "integer-quantizer": Case({}, behind=(LORENZO, CODER), dtype="int32"),
    "difference": Case({}, before=(QUANTIZER,), behind=(CODER,)),
    "chunk-difference": Case({"chunk_bytes": 4096}, before=(QUANTIZER,), behind=(("zero-elimination", {"chunk_bytes": 4096}),)),
    "negabinary": Case({}, before=(QUANTIZER, LORENZO), behind=(CODER,)),
    "bit-shuffle": Case(
        {"chunk_bytes": 8192, "word": 8}, before=(QUANTIZER,), behind=(("zero-elimination", {"chunk_bytes": 8192}),)
    ),
    "lorenzo-1d": Case({"region": 96}, before=(QUANTIZER,), behind=(CODER,)),
    "adaptive-lorenzo": Case({"tile": 96}, before=(QUANTIZER,), behind=(CODER,)),
    "tile-order": Case({"axes": 2}, before=(QUANTIZER,), behind=(CODER,)),
    "tiled-lorenzo": Case({"axes": 3}, before=(QUANTIZER, ("tile-order", {"axes": 3})), behind=(CODER,)),
    "lorenzo-nd": Case({"axes": 2}, before=(QUANTIZER,), behind=(CODER,)),
    "outlier": Case({"segment": 96}, before=(QUANTIZER, LORENZO)),
    "zigzag": Case({}, before=(QUANTIZER, LORENZO), behind=(CODER,)),
    "plain-rate": Case({"segment": 64}, before=(QUANTIZER, LORENZO)),
    "adaptive-bitplane": Case({"segment": 128}, before=(QUANTIZER, LORENZO)),
    "zero-elimination": Case({"chunk_bytes": 4096, "word": 2, "levels": "adaptive", "planes": 16}, before=(QUANTIZER,)),
    "repetition-elimination": Case({"chunk_bytes": 8192, "word": 4, "levels": 3, "planes": 32}, before=(QUANTIZER,)),
    "adaptive-zero-elimination": Case({"chunk_bytes": 8192, "word": 2, "levels": 0}, before=(QUANTIZER,)),
    "adaptive-repetition-elimination": Case({"chunk_bytes": 4096, "word": 8, "levels": "adaptive"}, before=(QUANTIZER,)),
    "clog": Case(
        {"chunk_bytes": 4096, "word": 8}, before=(QUANTIZER, ("chunk-difference", {"chunk_bytes": 4096}), ("zigzag", {}))
    ),
    "hclog": Case({"chunk_bytes": 8192, "word": 2}, before=(QUANTIZER,)),
    "huffman": Case({"contexts": 3}, before=(QUANTIZER, LORENZO)),
    "run-length": Case({}, before=(QUANTIZER,)),
    "tuple-order": Case(
        {"chunk_bytes": 8192, "word": 8, "size": 3}, before=(QUANTIZER,), behind=(("zero-elimination", {"chunk_bytes": 8192}),)
    ),
}


def own_stages() -> set[str]:
    """The stages of briquette's own packs; tests may have installed others."""
    registry = discovery.registry()
    return {n for n in registry.stages() if ":" not in n and registry.stage_origin(n).distribution.startswith("briquette-")}


def build(name: str, node: str = "") -> bq.Pipeline:
    case, registry = CASES[name], discovery.registry()
    pipe = bq.Pipeline(f'a "{name}"', "line one\nline two", bq.Bound(0.1 + 0.2, case.mode))
    for stage, parameters in (*case.before, (name, case.parameters), *case.behind):
        pipe.add(registry.stage_class(stage).from_parameters(parameters), node if stage == name else "")
    return pipe


def data(name: str, rng: np.random.Generator, n: int) -> np.ndarray[Any, Any]:
    """Values of the case's type; integers are steps apart that its bound leaves alone."""
    x = walk(rng, n, "float32")
    if CASES[name].before == (QUANTIZER,):  # without a predictor codes are small only where they are not negative
        x = np.abs(x)
    return x if CASES[name].dtype == "float32" else np.rint(np.clip(np.nan_to_num(x), -1e4, 1e4)).astype(CASES[name].dtype)


def test_every_registered_stage_has_a_case() -> None:
    assert own_stages() == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_no_parameter_is_at_its_default(name: str) -> None:
    cls = discovery.registry().stage_class(name)
    assert set(CASES[name].parameters) == set(cls.parameter_names())
    default = cls().parameters()
    assert all(default[key] != value for key, value in CASES[name].parameters.items())


@pytest.mark.parametrize("node", ["", "a node, named"])
@pytest.mark.parametrize("name", CASES)
def test_toml_gives_an_equal_pipeline(name: str, node: str) -> None:
    pipe = build(name, node)
    again = bq.Pipeline.from_toml(pipe.to_toml())
    assert again == pipe
    assert (again.title, again.description, again.bound) == (pipe.title, pipe.description, pipe.bound)
    assert list(again.graph.nodes) == list(pipe.graph.nodes)
    assert [s.parameters() for s in again.graph.nodes.values()] == [s.parameters() for s in pipe.graph.nodes.values()]
    assert again.to_toml() == pipe.to_toml()


@pytest.mark.parametrize("name", CASES)
def test_toml_gives_the_same_archives(name: str, rng: np.random.Generator) -> None:
    pipe = build(name)
    again = bq.Pipeline.from_toml(pipe.to_toml())
    x = data(name, rng, 9999)
    blobs, backs = [], []
    for run in (pipe, again):
        for way in WAYS:
            coded = compressed(x, None, "abs", run, way)  # the bound comes from the TOML too
            assert not coded.raw
            assert coded.eb == (0.1 + 0.2 if x.dtype.kind == "f" else 0)  # integers come back as they are, or 1 off at least
            blobs.append(bytes(coded.archive))
            backs.append(restored(blobs[0], x, way).array)
    assert blobs == blobs[:1] * 6
    assert all(np.array_equal(bits(back), bits(backs[0])) for back in backs)


@pytest.mark.parametrize("name", CASES)
def test_archives_hold_the_parameters(name: str, rng: np.random.Generator) -> None:
    """The archive, like the TOML, has what was set: a reader that took defaults would decode something else."""
    coded = bq.compress_run(data(name, rng, 2000), pipeline=build(name), target="numpy")
    assert not coded.raw
    entry = next(s for s in bq.info(coded.archive)["stages"] if s["stage"].rpartition(":")[2] == name)
    assert entry["parameters"] == CASES[name].parameters

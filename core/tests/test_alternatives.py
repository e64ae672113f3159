"""Alternatives: the stage that stands in by mode and dtype, its node's name, and modes that nothing serves."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from discovery_kit import point

import briquette as bq
from briquette import discovery, pipeline_toml
from briquette.alternatives import Alternative
from briquette.errors import PipelineError, UsageError
from briquette.ports import PortType
from briquette.record import Bound
from briquette.stage import Scope, Stage


@dataclass(frozen=True)
class Bits(Stage):
    """Hands values on as integers of their bits; a lossless stand-in for a quantizer."""

    flip: int = 0
    name: ClassVar[str] = "bits"
    needs_bound: ClassVar[bool] = True

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": PortType(f"int{8 * inputs['in'].numpy.itemsize}")}

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"out": inputs["in"].view(scope.types["out"].numpy) ^ self.flip}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"in": (outputs["out"] ^ self.flip).view(scope.types["in"].numpy)}


@dataclass(frozen=True)
class PointBits(Bits):
    """The same for another mode."""

    name: ClassVar[str] = "point-bits"
    bound_modes: ClassVar[tuple[str, ...]] = ("pwrel",)


@dataclass(frozen=True)
class Same(Stage):
    """Hands codes on."""

    name: ClassVar[str] = "same"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": inputs["in"]}

    def forward(self, inputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"out": inputs["in"]}

    def inverse(self, outputs: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
        return {"in": outputs["out"]}


PLAIN = '[[stage]]\nuse = "bits"\n'
TEXT = """
[[stage]]
use = "bits"
[[stage.when]]
modes = ["pwrel"]
dtypes = ["float64"]
use = "point-bits"
[stage.when.params]
flip = 5
[[stage.when]]
modes = ["pwrel"]
use = "acme-bits:point-bits"
[[stage.when]]
dtypes = ["int32", "int64"]
[[stage]]
use = "same"
"""


@pytest.fixture(autouse=True)
def packs() -> Iterator[None]:
    stages = [point(c.name, f"{__name__}:{c.__name__}", dist="acme-bits") for c in (Bits, PointBits, Same)]
    presets = [
        point(name, f"{__name__}:{value}", "presets", "acme-bits") for name, value in (("plain", "PLAIN"), ("several", "TEXT"))
    ]
    with discovery.use(discovery.Registry.from_entry_points([*stages, *presets])):
        yield


@pytest.mark.parametrize(
    ("dtype", "bound", "stages"),
    [
        ("float32", Bound(1e-3), [("bits", Bits()), ("same", Same())]),
        ("float32", None, [("bits", Bits()), ("same", Same())]),
        ("float64", Bound(1e-3, "pwrel"), [("point-bits", PointBits(5)), ("same", Same())]),
        ("float32", Bound(1e-3, "pwrel"), [("point-bits", PointBits()), ("same", Same())]),
        ("int32", Bound(1e-3), [("same", Same())]),
        ("int64", None, [("same", Same())]),
    ],
)
def test_the_first_alternative_that_applies_stands_in(dtype: str, bound: Bound | None, stages: list[Any]) -> None:
    pipe = bq.Pipeline.from_toml(TEXT)
    assert list(pipe.variant(dtype, bound).graph.nodes.items()) == stages
    assert pipe.variant(dtype, bound) is pipe.variant(dtype, bound)  # with its plans


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("mode", ["abs", "pwrel"])
def test_archives_hold_what_ran_and_nothing_of_alternatives(dtype: str, mode: str) -> None:
    pipe = bq.Pipeline.from_toml(TEXT)
    x = np.arange(3000).astype(dtype)
    ran = bq.compress_run(x, 1e-3, mode, pipeline=pipe, target="numpy")
    np.testing.assert_array_equal(bq.decompress(ran.archive, target="numpy"), x)
    assert ran.plan.graph.nodes == pipe.variant(dtype, Bound(1e-3, mode)).graph.nodes
    assert ran.plan == pipe.plan(x, target="numpy", mode=mode)
    same = bq.compress(x, 1e-3, mode, pipeline=bq.chain(*ran.plan.graph.nodes.values()), target="numpy")
    assert same == ran.archive


def test_text_objects_and_pickles_keep_alternatives() -> None:
    pipe = bq.Pipeline.from_toml(TEXT)
    assert bq.Pipeline.from_toml(pipe.to_toml()) == pipe == pickle.loads(pickle.dumps(pipe))
    spec = pipeline_toml.loads(TEXT)
    assert pipeline_toml.loads(pipeline_toml.dumps(spec)) == spec
    built = bq.Pipeline()
    node = built.add(Bits())
    built.when(node, PointBits(5), modes=["pwrel"], dtypes=["float64"])
    built.when(node, "acme-bits:point-bits", modes=["pwrel"])
    built.when(node, None, dtypes=["int32", "int64"])
    built.add("same")
    assert built.variant("float64", Bound(0.5, "pwrel")) == pipe.variant("float64", Bound(0.5, "pwrel"))
    assert built.variant("int64", None) == bq.chain("same")
    assert built != bq.chain("bits", "same")
    with pytest.raises(PipelineError, match="has been planned or run"):
        pipe.when("bits", None, modes=["abs"])


def test_edges_follow_the_name_of_what_stands_in() -> None:
    edges = '[[edge]]\nfrom = "in"\nto = "bits.in"\n[[edge]]\nfrom = "bits.out"\nto = "same.in"\n'
    pipe = bq.Pipeline.from_toml(TEXT + edges)
    assert list(pipe.variant("float32", Bound(0.1, "pwrel")).graph.nodes) == ["point-bits", "same"]
    with pytest.raises(PipelineError, match="leaves node 'bits' out, which edges begin at"):
        pipe.variant("int32", None)
    named = bq.Pipeline.from_toml(TEXT.replace('use = "bits"', 'use = "bits"\nnode = "first"', 1))
    assert list(named.variant("float32", Bound(0.1, "pwrel")).graph.nodes) == ["first", "same"]
    twice = bq.Pipeline.from_toml(TEXT.replace('use = "same"', 'use = "same"\nnode = "point-bits"'))
    assert list(twice.variant("float32", Bound(0.1, "pwrel")).graph.nodes) == ["point-bits-2", "point-bits"]


def test_a_leaf_may_be_left_out_beside_edges() -> None:
    text = """
[[stage]]
use = "bits"
[[stage]]
use = "same"
node = "leaf"
[[stage.when]]
dtypes = ["float64"]
[[stage]]
use = "same"
[[edge]]
from = "bits.out"
to = "same.in"
[[edge]]
from = "bits.out"
to = "leaf.in"
"""
    pipe = bq.Pipeline.from_toml(text)
    assert pipe.variant("float32", Bound(0.1)).graph.sinks == (("same", "out"), ("leaf", "out"))
    left = pipe.variant("float64", Bound(0.1))
    assert left.graph.linear
    assert left == bq.chain("bits", "same")


def test_a_mode_that_no_stage_serves_names_the_presets_that_do() -> None:
    text = (
        "mode 'pwrel' is not served by this pipeline: its stage 'bits' serves 'abs', 'rel'; presets that serve 'pwrel': several$"
    )
    with pytest.raises(UsageError, match=text):
        bq.compress(np.ones(3), 1e-3, "pwrel", pipeline="plain")
    with pytest.raises(UsageError, match=r"its stage 'point-bits' serves 'pwrel'; presets that serve 'abs': plain, several$"):
        bq.chain("point-bits").plan("float32", mode="abs")
    with pytest.raises(UsageError, match=r"needs an error bound \(for bits\)"):
        bq.compress(np.ones(3), pipeline="plain", target="numpy")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            'modes = ["pw"]\nuse = "same"',
            r"stage\]\] 1 \(bits\), \[\[stage.when\]\] 1: mode 'pw' of an alternative is unknown; use",
        ),
        ('dtypes = ["float"]', "dtype 'float' of an alternative is unknown"),
        ('use = "same"', "names neither modes nor dtypes would always apply"),
        ('modes = "abs"', "modes = 'abs' is not a list of strings"),
        ("modes = [1]", r"modes = \[1\] is not a list of strings"),
        ('modes = ["abs"]\nuse = "No Stage"', "'No Stage' is no name of a stage"),
        ('modes = ["abs"]\n[stage.when.params]\na = 1', "an alternative with parameters names no stage"),
        ('modes = ["abs"]\nuse = "same"\n[stage.when.params]\na = [1]', "a = .* is a list; parameters are"),
        ('modes = ["abs"]\nmode = "abs"', "unknown key 'mode'; known: modes, dtypes, use, params"),
    ],
)
def test_faults_of_alternatives_are_named_with_their_place(table: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        bq.Pipeline.from_toml(f"{PLAIN}[[stage.when]]\n{table}\n")


def test_when_is_a_list_of_tables_and_names_a_node() -> None:
    with pytest.raises(PipelineError, match=r"'when' is not a list of tables; write \[\[stage.when\]\]"):
        bq.Pipeline.from_toml(f"{PLAIN}[stage.when]\nuse = 'same'\n")
    pipe = bq.Pipeline()
    pipe.add("bits")
    with pytest.raises(PipelineError, match="there is no node 'same'; nodes: bits"):
        pipe.when("same", None, modes=["abs"])


def test_an_alternative_applies_where_both_conditions_hold() -> None:
    both = Alternative(("abs", "none"), ("float32",), "same")
    asked = [("abs", "float32"), ("none", "float32"), ("rel", "float32"), ("abs", "float64")]
    assert [both.applies(*each) for each in asked] == [True, True, False, False]


@pytest.mark.parametrize("eb", [1.0, 1.5, 1e300])
def test_a_point_wise_bound_is_below_one(eb: float) -> None:
    assert Bound(eb).eb == eb
    assert Bound(0.9999999999999999, "pwrel").mode == "pwrel"
    with pytest.raises(UsageError, match="of mode 'pwrel' must be below 1"):
        Bound(eb, "pwrel")

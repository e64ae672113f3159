"""Pipeline descriptions as TOML: equal after a round trip, and every fault named with its place."""

from __future__ import annotations

import enum
import importlib.util
import math
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from briquette import _toml
from briquette.errors import PipelineError
from briquette.pipeline_toml import PipelineSpec, StageSpec, dumps, free_name, loads, split_port
from briquette.record import Bound

FULL = """
title = "fast"
description = "two stages"
[bound]
eb = 1e-3
mode = "noa"
[[stage]]
use = "linear-quantizer"
node = "quantizer"
[stage.params]
code_type = "auto"
levels = 3
ratio = 0.5
fold = true
[[stage]]
use = "acme-pack:lorenzo-1d"
[[edge]]
from = "in"
to = "quantizer.in"
[[edge]]
from = "quantizer.codes"
to = "lorenzo-1d.in"
"""


def test_every_part_is_read() -> None:
    assert loads(FULL) == PipelineSpec(
        stages=(
            StageSpec("quantizer", "linear-quantizer", {"code_type": "auto", "levels": 3, "ratio": 0.5, "fold": True}),
            StageSpec("lorenzo-1d", "acme-pack:lorenzo-1d", {}),
        ),
        edges=(("", "in", "quantizer", "in"), ("quantizer", "codes", "lorenzo-1d", "in")),
        bound=Bound(1e-3, "rel"),
        title="fast",
        description="two stages",
    )


def test_what_may_be_left_out() -> None:
    spec = loads('\ufeff[[stage]]\nuse = "zigzag"\n')
    assert spec == PipelineSpec((StageSpec("zigzag", "zigzag"),))
    assert spec.edges is None
    assert spec.bound is None
    assert loads('[bound]\neb = 2\n[[stage]]\nuse = "a"').bound == Bound(2.0, "abs")


def test_nodes_are_numbered_where_a_stage_repeats() -> None:
    stages = ('use = "a"', 'use = "p:a"', 'use = "a"\nnode = "a-2"', 'use = "a"', 'use = "b"\nnode = "b"', 'use = "b"')
    spec = loads("\n".join(f"[[stage]]\n{stage}" for stage in stages))
    assert [s.node for s in spec.stages] == ["a", "a-3", "a-2", "a-4", "b", "b-2"]


def test_free_name_and_split_port() -> None:
    assert free_name("p:a", {"a", "a-3"}) == "a-2"
    assert split_port("node.port.more") == ("node", "port.more")
    for text in ("node", ".port", "node.", ""):
        with pytest.raises(PipelineError, match=r"is not of the form node\.port"):
            split_port(text)


def test_what_is_written_reads_well() -> None:
    assert dumps(loads(FULL)) == FULL.lstrip().replace("\n[", "\n\n[").replace("\n\n[stage.params]", "\n[stage.params]").replace(
        "1e-3", "0.001"
    ).replace("noa", "rel")


# -- round trips -------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
NAMES = st.from_regex(r"[a-z0-9]{1,3}(-[a-z0-9]{1,3})?", fullmatch=True)
NODES = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), min_size=1).filter(lambda t: "." not in t)


@st.composite
def specs(draw: st.DrawFn) -> PipelineSpec:
    uses = draw(
        st.lists(st.tuples(NAMES, st.none() | st.from_regex(r"[A-Za-z]([a-z._-]{0,3}[a-z])?", fullmatch=True)), min_size=1)
    )
    names = [f"{pack}:{name}" if pack else name for name, pack in uses]
    nodes: list[str] = []
    for name in names:
        node = draw(st.none() | NODES)
        nodes.append(free_name(name, nodes) if node is None or node in nodes else node)
    stages = tuple(StageSpec(node, name, draw(st.dictionaries(TEXT, VALUES))) for node, name in zip(nodes, names, strict=True))
    ports = TEXT.filter(bool)
    inner = st.tuples(st.sampled_from(nodes), ports, st.sampled_from(nodes), ports)
    outer = st.tuples(st.just(""), st.just("in"), st.sampled_from(nodes), ports)
    edges = draw(st.none() | st.lists(inner | outer, min_size=1).map(tuple))
    eb = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
    bound = draw(st.none() | st.builds(Bound, eb, st.sampled_from(["abs", "rel", "noa"])))
    return PipelineSpec(stages, edges, bound, draw(TEXT), draw(TEXT))


@given(specs())
def test_round_trip(spec: PipelineSpec) -> None:
    again = loads(dumps(spec))
    assert again == spec
    # == takes True for 1 and -0.0 for 0.0
    assert [repr(sorted(s.params.items())) for s in again.stages] == [repr(sorted(s.params.items())) for s in spec.stages]
    assert dumps(again) == dumps(spec)


def test_nan_stays_nan() -> None:
    value = loads(dumps(PipelineSpec((StageSpec("a", "a", {"x": -math.nan}),)))).stages[0].params["x"]
    assert isinstance(value, float)
    assert math.isnan(value)


def test_subclasses_of_scalars_are_written_by_value() -> None:
    numpy = pytest.importorskip("numpy")

    class Mode(str, enum.Enum):
        FAST = "fast"

    class Level(enum.IntEnum):
        ONE = 1

    spec = PipelineSpec((StageSpec("a", "a", {"mode": Mode.FAST, "x": numpy.float64(0.1), "n": Level.ONE}),))
    assert loads(dumps(spec)).stages[0].params == {"mode": "fast", "x": 0.1, "n": 1}


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "x' of 'a' is None, and TOML has no null"), (b"\0", "TOML has no bytes"), ("\ud800", "cannot be written as TOML")],
)
def test_what_toml_cannot_hold(value: Any, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        dumps(PipelineSpec((StageSpec("a", "a", {"x": value}),)))


# -- faults ------------------------------------------------------------------------------------------------

STAGE = '[[stage]]\nuse = "a"\n'
FAULTS = {
    "not TOML": (STAGE + "x = = 3", r"mine\.toml is not valid TOML: .*line 3, column 5"),
    "empty": ("", "at least one stage; add a"),
    "unknown top": (
        "colour = 1\n" + STAGE,
        "mine.toml, top level: unknown key 'colour'; known: title, description, bound, stage, edge",
    ),
    "title": ("title = 1\n" + STAGE, "top level: title = 1 is not a string"),
    "stage no list": ('stage = "a"', r"'stage' is not a list of tables; write \[\[stage\]\]"),
    "stage a table": ('[stage]\nuse = "a"', r"'stage' is not a list of tables; write \[\[stage\]\]"),
    "use missing": ("[[stage]]", r"mine\.toml, \[\[stage\]\] 1: the key 'use' is missing"),
    "use type": ("[[stage]]\nuse = 3", r"\[\[stage\]\] 1: use = 3 is not a string"),
    "use form": (STAGE + '[[stage]]\nuse = "A B"', r"\[\[stage\]\] 2: 'A B' is no name of a stage"),
    "unknown in stage": (STAGE + 'par = "x"', r"\[\[stage\]\] 1: unknown key 'par'; known: use, node, params"),
    "node empty": (STAGE + 'node = ""', "node name '' of stage 'a' must not be empty"),
    "node dot": (STAGE + 'node = "a.b"', "nor contain a dot"),
    "node twice": ((STAGE + 'node = "n"\n') * 2, r"mine\.toml: two stages have the node name 'n'"),
    "params no table": (STAGE + "params = 3", r"\[\[stage\]\] 1 \(a\): params is 3, not a table"),
    "param list": (STAGE + "[stage.params]\nx = [1]", r"params: x = \[1\] is a list; parameters are bools, numbers or strings"),
    "param date": (STAGE + "[stage.params]\nx = 1979-05-27", r"is a date"),
    "bound no table": ("bound = 3\n" + STAGE, r"\[bound\]: 3 is not a table"),
    "eb missing": ("[bound]\n" + STAGE, r"\[bound\]: eb is missing"),
    "eb text": ('[bound]\neb = "1"\n' + STAGE, r"\[bound\]: eb = '1' is not a number"),
    "eb bool": ("[bound]\neb = true\n" + STAGE, r"\[bound\]: eb = True is not a number"),
    "eb zero": ("[bound]\neb = 0\n" + STAGE, r"\[bound\]: error bound 0 must be finite and greater than zero"),
    "eb huge": (f"[bound]\neb = 1{'0' * 400}\n" + STAGE, r"\[bound\]: "),
    "mode": ('[bound]\neb = 1\nmode = "l2"\n' + STAGE, r"\[bound\]: mode 'l2' is unknown"),
    "unknown in bound": ("[bound]\neb = 1\nx = 1\n" + STAGE, r"\[bound\]: unknown key 'x'; known: eb, mode"),
    "edge from missing": (STAGE + '[[edge]]\nto = "a.in"', r"\[\[edge\]\] 1: the key 'from' is missing"),
    "edge form": (
        STAGE + '[[edge]]\nfrom = "a"\nto = "a.in"',
        r"from = 'a' is not of the form node.port .the pipeline's own input is",
    ),
    "edge to form": (STAGE + '[[edge]]\nfrom = "in"\nto = "a"', r"\[\[edge\]\] 1: to = 'a' is not of the form node.port"),
    "edge to input": (STAGE + '[[edge]]\nfrom = "a.out"\nto = "in"', r"to = 'in' is not of the form"),
    "edge node": (STAGE + '[[edge]]\nfrom = "b.out"\nto = "a.in"', "there is no node 'b'; nodes: a"),
    "unknown in edge": (STAGE + '[[edge]]\nfrom = "in"\nto = "a.in"\nx = 1', r"\[\[edge\]\] 1: unknown key 'x'; known: from, to"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named_with_their_place(fault: str) -> None:
    text, said = FAULTS[fault]
    with pytest.raises(PipelineError, match=said) as caught:
        loads(text, "mine.toml")
    assert str(caught.value).startswith("mine.toml")


@given(st.text(alphabet='[]="\n.stageudon1x '))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        spec = loads(text)
    except PipelineError:
        return
    assert loads(dumps(spec)) == spec


# -- the parser --------------------------------------------------------------------------------------------


def test_tomli_stands_in_below_python_3_11(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("tomli")
    stand_in.loads = lambda text: {"read by": "tomli"}  # type: ignore[attr-defined]
    stand_in.TOMLDecodeError = KeyError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tomllib", None)  # makes its import fail
    monkeypatch.setitem(sys.modules, "tomli", stand_in)
    assert _toml.__spec__ is not None
    assert _toml.__spec__.origin is not None
    spec = importlib.util.spec_from_file_location("briquette_toml_again", _toml.__spec__.origin)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.loads("") == {"read by": "tomli"}
    assert again.TOMLDecodeError is KeyError

"""The survey: every stage of every pack is looked at, or the reason why not is kept."""

from __future__ import annotations

import importlib.metadata
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.discovery import Registry
from briquette.ports import PortType
from briquette.stage import Stage
from briquette_warp.probe import Probe, geometries, probe_source, typical
from briquette_warp.survey import survey


@dataclass(frozen=True)
class Halve(Stage):
    """A predictor over a region that has to be given."""

    region: int

    name: ClassVar[str] = "halve"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        return {"out": inputs["in"]}

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(FusionAccess.REGION_LOCAL, self.region)

    def fused_op(self) -> FusedOp | None:
        return FusedOp("warp-register", "Halve", "acme/cuda/halve.cuh", dtypes=("int32",))


@dataclass(frozen=True)
class Elsewhere(Stage):
    """A policy for another harness."""

    name: ClassVar[str] = "elsewhere"

    def fused_op(self) -> FusedOp | None:
        return FusedOp("acme-harness", "Elsewhere", "acme/cuda/elsewhere.cuh")


@dataclass(frozen=True)
class Raises(Stage):
    """Declarations that fail."""

    name: ClassVar[str] = "raises"

    def fused_op(self) -> FusedOp | None:
        raise RuntimeError("no policy today")


PRESET = 'title = "t"\n[[stage]]\nuse = "halve"\n[stage.params]\nregion = 64\n'


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("acme")
    module.__dict__.update(Halve=Halve, Elsewhere=Elsewhere, Raises=Raises, preset=PRESET)
    monkeypatch.setitem(sys.modules, "acme", module)
    return module


def registry(*points: tuple[str, str, str]) -> Registry:
    made = [importlib.metadata.EntryPoint(name, value, f"briquette.{kind}") for name, value, kind in points]
    return Registry.from_entry_points(made)


@pytest.mark.usefixtures("acme")
def test_presets_and_variants_give_configurations() -> None:
    halve, preset = ("halve", "acme:Halve", "stages"), ("mine", "acme:preset", "presets")
    assert [p.title for p in survey(registry(halve, preset)).policies] == ["halve(region=64)"]
    found = survey(registry(halve, preset), {"halve": [{"region": 8}, {"region": 64}]})
    assert [(p.pack, p.title, p.dtype) for p in found.policies] == [
        ("acme", "halve(region=64)", "int32"),
        ("acme", "halve(region=8)", "int32"),
    ]
    assert found.problems == ()


@pytest.mark.usefixtures("acme")
def test_what_cannot_be_looked_at_is_said() -> None:
    points = [(cls.name, f"acme:{cls.__name__}", "stages") for cls in (Halve, Elsewhere, Raises)]
    found = survey(registry(*points), {"halve": [{"size": 8}], "unheard-of": [{}]})
    assert found.policies == ()
    assert found.left_out == ("elsewhere of acme: it declares no warp-register policy for both directions",)
    bad, without, raises, unheard = found.problems
    assert bad.startswith("stage halve of acme: it cannot be made with {'size': 8}: ")
    assert without.startswith("stage halve of acme: it has no default parameters (")
    assert raises == "stage raises of acme: its declarations fail: no policy today"
    assert "no stage 'unheard-of' is registered" in unheard


@pytest.mark.usefixtures("acme")
def test_geometries_of_a_region() -> None:
    def of(region: int) -> list[str]:
        found = survey(registry(("halve", "acme:Halve", "stages")), {"halve": [{"region": region}]})
        return [str(g) for g in geometries(found.policies[0].forward)]

    assert of(100) == ["1x100", "2x50", "4x25"]
    assert of(5) == ["1x5"]
    assert of(16) == ["1x32", "2x8", "4x4", "8x2", "16x1"]
    assert of(8192) == ["32x256"]
    assert of(65536) == []


@pytest.mark.usefixtures("acme")
def test_a_probe_names_both_kernels_and_the_header() -> None:
    policy = survey(registry(("halve", "acme:Halve", "stages")), {"halve": [{"region": 64}]}).policies[0]
    chosen = typical(policy.forward)
    assert [str(g) for g in chosen] == ["1x64", "8x8", "32x2"]
    source = probe_source("halve", [Probe(policy.forward, policy.inverse, g) for g in chosen])
    assert source.entry_points == tuple(f"p{i}_{d}" for i in range(3) for d in ("forward", "inverse"))
    assert source.text.count("#include <acme/cuda/halve.cuh>") == 1
    assert "briquette::probe::inverse<Op_p1_inverse, 8, briquette::WarpLanes<8>>(lane, in, out, params);" in source.text

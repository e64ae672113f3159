"""Spans in bytes: what a stage may declare, and the archive chunk that follows from them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from toys import Toy, ToyHarness, ToyTarget

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.errors import DeclarationError, PipelineError
from briquette.graph import Graph
from briquette.planner import make_plan


@dataclass(frozen=True)
class ByteToy(Toy):
    """A toy whose span is in bytes, and whose policy may serve several harnesses."""

    access: FusionAccess = FusionAccess.REGION_LOCAL
    span: int = 16384
    serves: tuple[str, ...] = ("chunks",)

    def fusion_spec(self) -> FusionSpec:
        return FusionSpec(self.access, self.span, "elements" if self.access is FusionAccess.ELEMENTWISE else "bytes")

    def inverse_fusion_spec(self) -> FusionSpec:
        return self.fusion_spec()

    def fused_op(self) -> FusedOp | None:
        return FusedOp(self.serves, "Toy", "toys/cuda/toy.cuh")


ELEMENTWISE = ByteToy(FusionAccess.ELEMENTWISE, 1, serves=("regions", "chunks"))


def graph(*stages: Toy) -> Graph:
    return Graph.build({f"n{i}": stage for i, stage in enumerate(stages)}, None)


@pytest.mark.parametrize(("dtype", "chunk"), [("int8", 16384), ("uint16", 8192), ("float32", 4096), ("float64", 2048)])
def test_a_span_in_bytes_is_the_chunk_of_every_type(dtype: str, chunk: int) -> None:
    made = graph(Toy(), ByteToy(), Toy(FusionAccess.REGION_LOCAL, 256))
    assert made.chunk_for(dtype) == chunk
    assert made.check_chunk(chunk, made.types(dtype)) == chunk
    with pytest.raises(PipelineError, match=f"a chunk of {2 * chunk} elements does not fit"):
        made.check_chunk(2 * chunk, made.types(dtype))


def test_elements_count_where_the_stage_stands() -> None:
    assert graph(Toy(makes="int32"), ByteToy()).chunk_for("float64") == 4096


def test_chunks_of_two_sizes_name_both_stages() -> None:
    with pytest.raises(PipelineError, match=r"n0 works on chunks of 4096 bytes \(1024 elements\), n2 of 16384 \(4096\)"):
        graph(ByteToy(span=4096), Toy(), ByteToy()).chunk_for("int32")


def test_a_region_that_does_not_divide_the_chunk_is_named() -> None:
    message = "n1 works on chunks of 16384 bytes, which are 4096 elements: the span of n0, 100 elements, does not divide them"
    with pytest.raises(PipelineError, match=message):
        graph(Toy(FusionAccess.REGION_LOCAL, 100), ByteToy()).chunk_for("int32")


def test_without_a_type_there_is_no_chunk() -> None:
    with pytest.raises(PipelineError, match="n0 works on chunks of 16384 bytes: their elements depend on the input's type"):
        _ = graph(ByteToy()).chunk


def test_specs_that_contradict_themselves() -> None:
    with pytest.raises(DeclarationError, match="counted in elements or bytes, not 'bits'"):
        FusionSpec(FusionAccess.REGION_LOCAL, 32, "bits")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="1 element, not 1 byte"):
        FusionSpec(FusionAccess.ELEMENTWISE, 1, "bytes")
    with pytest.raises(DeclarationError, match=r"outside 1\.\.65536 bytes"):
        FusionSpec(FusionAccess.REGION_LOCAL, 65_537, "bytes")
    with pytest.raises(DeclarationError, match="stage 'toy' declares: a span of 100 bytes holds no whole number"):
        graph(ByteToy(span=100)).chunk_for("int64")


def plan_of(*stages: Toy, refuses: dict[str, str], fusion: str = "auto"):  # type: ignore[no-untyped-def]
    def refusing(why: str | None) -> ToyHarness:
        return ToyHarness(refuses=lambda nodes: why if len(nodes) > 1 else None)

    harnesses = [refusing(refuses.get(name)) for name in ("regions", "chunks")]
    for harness, name in zip(harnesses, ("regions", "chunks"), strict=True):
        harness.name = name
    return make_plan(graph(*stages), "int32", ToyTarget(), harnesses, fusion)


REGION = ByteToy(FusionAccess.ELEMENTWISE, 1, serves=("regions",))


def test_parts_that_fit_different_harnesses_get_a_group_of_each() -> None:
    plan = plan_of(REGION, ELEMENTWISE, ByteToy(), ELEMENTWISE, refuses={})
    for way in (plan.forward, plan.inverse):
        assert sorted(way.groups) in ([("n0",), ("n1", "n2", "n3")], [("n1", "n2", "n3")], [("n0", "n1"), ("n2", "n3")])
        assert way.launches == 2
        assert {s.harness for s in way.steps} == {"regions", "chunks"}
    assert "fused by chunks" in plan.explain()
    assert "written for different harnesses: chunks, regions" in plan.explain()


def test_the_first_harness_that_runs_a_chain_gets_it() -> None:
    assert [s.harness for s in plan_of(ELEMENTWISE, ELEMENTWISE, refuses={}).forward.steps] == ["regions"]
    assert [s.harness for s in plan_of(ELEMENTWISE, ELEMENTWISE, refuses={"regions": "too long"}).forward.steps] == ["chunks"]


def test_the_reasons_of_all_harnesses_are_given() -> None:
    plan = plan_of(ELEMENTWISE, ELEMENTWISE, refuses={"regions": "too long", "chunks": "too odd"})
    assert [r.reason for r in plan.forward.reasons] == ["regions: too long; chunks: too odd"]
    assert plan.forward.launches == 2


def test_decompression_may_begin_at_any_chunk() -> None:
    assert plan_of(ELEMENTWISE, ByteToy(), refuses={}).random_access

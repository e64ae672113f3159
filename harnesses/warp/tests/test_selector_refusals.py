"""What keeps a selector out of a group, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import briquette as bq
from briquette import discovery
from briquette.declare import FusionAccess, FusionSpec
from briquette.harness import Direction, Member
from briquette.planner import chain_members
from briquette_warp.chain import Composition, refuse_chain
from briquette_warp.cuda_program import refuse_geometry

CHUNK = 8192


def stage(name: str, **params: Any) -> bq.Stage:
    return discovery.registry().stage_class(name).from_parameters(params)


def members(tile: int = 256, segment: int = 32, carried: bool = True, direction: Direction = "forward") -> list[Member]:
    pipe = bq.chain(stage("adaptive-lorenzo", tile=tile), stage("zigzag"), stage("plain-rate", segment=segment), sides=carried)
    graph = pipe.graph
    return chain_members(graph, graph.types("int32"), graph.order, direction)


@pytest.mark.parametrize("carried", [True, False])
def test_a_whole_chain_runs_in_both_directions(carried: bool) -> None:
    for direction in ("forward", "inverse"):
        assert refuse_chain(members(carried=carried, direction=direction), CHUNK, direction) is None


def test_a_selector_compresses_with_its_coder_only() -> None:
    apart = members(carried=False)
    assert refuse_chain(apart[:2], CHUNK, "forward") == (
        "adaptive-lorenzo: a TILE_SELECTOR chooses by its coder's cost; it runs in one group with the coder"
    )
    assert refuse_chain(apart[:2], CHUNK, "inverse") is None
    assert refuse_chain(apart[1:], CHUNK, "forward") is None


@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_a_coder_that_keeps_tiles_runs_with_their_selector_only(direction: Direction) -> None:
    why = "plain-rate: the coder keeps the modes of tiles; it runs in one group with their selector"
    assert refuse_chain(members()[1:], CHUNK, direction) == why
    assert refuse_chain(members()[2:], CHUNK, direction) == why
    other = members(tile=128)[0]
    assert refuse_chain([other, *members()[1:]], CHUNK, direction) == (
        "plain-rate: the coder keeps the tiles of another selector than adaptive-lorenzo"
    )


def test_one_selector_a_group() -> None:
    selector, zigzag, coder = members(carried=False)
    again = Member("second", selector.stage, selector.spec, selector.op, selector.types)
    assert refuse_chain([selector, again, zigzag, coder], CHUNK) == (
        "second: a group has one TILE_SELECTOR, adaptive-lorenzo is one already"
    )


def test_only_elementwise_stages_between_selector_and_coder() -> None:
    selector, zigzag, coder = members(carried=False)
    region = Member("region", zigzag.stage, FusionSpec(FusionAccess.REGION_LOCAL, 32), zigzag.op, zigzag.types)
    why = "region: only ELEMENTWISE stages may stand between a TILE_SELECTOR and its coder"
    assert refuse_chain([selector, region, coder], CHUNK) == why
    assert refuse_chain([selector, region], CHUNK, "inverse") == why


def test_a_selector_chooses_lane_by_lane() -> None:
    selector, zigzag, coder = members(carried=False)
    striped = Member("striped", zigzag.stage, zigzag.spec, replace(zigzag.op, geometry={"element_form": 1}), zigzag.types)
    why = "striped: policies in the element form work on a warp's elements; a TILE_SELECTOR chooses lane by lane"
    assert refuse_chain([selector, striped, coder], CHUNK) == why
    assert refuse_chain([striped, selector, coder], CHUNK) == why
    assert refuse_chain([striped, coder], CHUNK) is None


def test_a_tile_is_whole_segments() -> None:
    (selector, *_), (_, zigzag, coder) = members(tile=64, carried=False), members(segment=128, carried=False)
    assert refuse_chain([selector, zigzag, coder], CHUNK) == (
        "adaptive-lorenzo: a tile of 64 elements is no whole number of segments of 128"
    )


def test_a_gpu_takes_tiles_that_a_warp_can_share() -> None:
    for tile, chunk in ((96, 8160), (2048, CHUNK)):
        parts = Composition(tuple(members(tile=tile)), chunk)
        assert refuse_chain(parts.members, chunk) is None
        assert refuse_geometry(parts) is not None
    assert refuse_geometry(Composition(tuple(members(tile=2048)), CHUNK)) == (
        "adaptive-lorenzo: a span of 2048 elements is no power of two up to 1024, a warp's share"
    )
    assert refuse_geometry(Composition(tuple(members(tile=1024)), CHUNK)) is None

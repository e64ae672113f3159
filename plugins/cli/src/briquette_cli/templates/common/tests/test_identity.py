"""Every way of running the preset gives the same bytes, and what must fuse fuses: identity proves nothing where nothing did."""

from __future__ import annotations

import pickle

import briquette as bq
import numpy as np
import pytest
from briquette import discovery
from briquette.selection import why_unavailable

from cases import GROUPS, SPAN, field

#: why a target cannot run here, by name; None where it can
WHY = {target.name: why_unavailable(target) for target in discovery.registry().targets()}
COMPILED = [name for name, reason in WHY.items() if reason is None]
WAYS = [("numpy", "off"), *((target, fusion) for target in COMPILED for fusion in ("off", "auto"))]
EB = 1e-3


@pytest.fixture(scope="module")
def pipe() -> bq.Pipeline:
    return bq.Pipeline.from_preset("my-pack")


def check(pipe: bq.Pipeline, x: np.ndarray, ways: list[tuple[str, str]]) -> bytes:
    """Compress and decompress in all ways, into poisoned memory; return the archive."""
    blobs = {bytes(pipe.compress(x, EB, target=target, fusion=fusion)) for target, fusion in ways}
    assert len(blobs) == 1, f"{len(blobs)} different archives of {x.size} elements"
    blob = blobs.pop()
    back = {bq.decompress(blob, target=target, fusion=fusion, out=np.full_like(x, -77)).tobytes() for target, fusion in ways}
    assert len(back) == 1, f"{len(back)} different reconstructions of {x.size} elements"
    assert bq.verify(blob, x).ok, f"the bound is violated for {x.size} elements"
    return blob


@pytest.mark.skipif(not COMPILED, reason=f"no compiled target can run here: {WHY}")
def test_what_must_fuse_fuses(pipe: bq.Pipeline) -> None:
    for target in COMPILED:
        plan = pipe.plan("float32", target=target, fusion="auto")
        for way in (plan.forward, plan.inverse):
            assert sorted(way.groups) == sorted(GROUPS), f"{target}, {way.direction}:\n{plan.explain()}"


def test_every_way_gives_the_same_bytes(pipe: bq.Pipeline) -> None:
    for n in (1, 2, SPAN, 8192, 20_011):
        blob = check(pipe, field(n), WAYS)
        assert n < 8192 or not bq.info(blob)["raw"], "held raw, which proves nothing"


def test_every_length_of_the_last_span(pipe: bq.Pipeline) -> None:
    ways = [("numpy", "off"), *((target, "auto") for target in COMPILED)]
    step = max(1, SPAN // 64)
    for n in range(1000, 1000 + SPAN + step, step):
        check(pipe, field(n), ways)


def test_special_values(pipe: bq.Pipeline) -> None:
    x = field(20_011)
    x[[0, 7, 8, 8191, 8192, 20_010]] = np.nan, np.inf, -np.inf, 3e38, -3e38, np.nan
    check(pipe, x, WAYS)
    for value in (0.0, 1e-42, np.nan):
        check(pipe, np.full(5000, value, np.float32), WAYS)


def test_threads_do_not_matter(pipe: bq.Pipeline) -> None:
    x = field(300_000)
    for target in COMPILED:
        blobs = {bytes(pipe.compress(x, EB, target=target, threads=threads)) for threads in (1, 2, 5)}
        assert blobs == {bytes(pipe.compress(x, EB, target="numpy"))}


def test_copies_are_equal(pipe: bq.Pipeline) -> None:
    assert bq.Pipeline.from_toml(pipe.to_toml()) == pipe
    stage = discovery.registry().stage_class("my-pack")()
    assert pickle.loads(pickle.dumps(stage)) == stage

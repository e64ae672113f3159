"""Small archives that claim much: what is allocated stays within what their tables can hold, and code is never theirs."""

from __future__ import annotations

import dataclasses
import itertools
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.archives import DTYPES, SEGMENTED, field, pipeline, sound
from hostile.campaigns import TARGETS
from hostile.guard import SLACK

import briquette
from briquette import outliers
from briquette.archive import Archive, ArchiveWriter
from briquette.errors import ArchiveError
from briquette.graph import Graph
from briquette.pipeline import Pipeline
from briquette.ports import Chunked
from briquette_conformance.resealing import edit_header

CHUNK, CHUNKS = 65_536, 64


def bomb(preset: str, dtype: str, kept: str) -> bytes:
    """Return an archive of `CHUNKS` of the largest chunks, each of a few words: zeros, and values kept aside as `kept` says."""
    header = Archive.open(bytes(briquette.compress(field(dtype, "none"), 0.1, pipeline=preset, target="numpy"))).header
    stages = [dataclasses.replace(s, parameters={"tile": 4096}) if "tile" in s.parameters else s for s in header.stages]
    stages[-1] = dataclasses.replace(stages[-1], parameters={"segment": 1024})
    header = dataclasses.replace(header, shape=(CHUNKS, CHUNK), chunk=CHUNK, stages=tuple(stages))
    words = CHUNK // 1024 // 4
    which = np.zeros(CHUNK, np.bool_)
    which[:: {"none": CHUNK, "every": 1, "second": 2}[kept]] = kept != "none"
    side = outliers.encode(which, np.full(CHUNK, np.nan, dtype), CHUNK)
    writer = ArchiveWriter(header, 2)
    writer.add_chunked(Chunked(np.full(CHUNKS, words, np.uint32), np.zeros(CHUNKS * words, np.uint32)), header.count)
    sizes = np.full(CHUNKS, side.words.size, np.uint32)
    writer.add_chunked(Chunked(sizes, np.tile(side.words, CHUNKS)), header.count)
    return bytes(writer.finish())


@pytest.mark.parametrize("fusion", ["auto", "off"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kept", ["none", "every", "second"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("preset", SEGMENTED)
def test_memory_is_bounded_by_what_the_tables_can_hold(preset: str, dtype: str, kept: str, target: str, fusion: str) -> None:
    data = bomb(preset, dtype, kept)
    holds = CHUNKS * CHUNK * np.dtype(dtype).itemsize
    assert kept == "second" or len(data) < holds / 1000
    tracemalloc.start()
    try:
        array = briquette.decompress(data, target=target, fusion=fusion, threads=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isnan(array).sum() == {"none": 0, "every": array.size, "second": array.size // 2}[kept]
    assert holds <= peak < SLACK + 4 * holds


def repeated(count: int) -> Any:
    """Return an edit that makes the pipeline long, its stages listed against their order."""

    def change(fields: dict[str, Any]) -> None:
        head, predictor, coder = fields["p"]
        names = ["linear-quantizer", *(f"p{i}" for i in range(count)), "plain-rate"]
        fields["p"] = [coder, *([name, *predictor[1:]] for name in names[-2:0:-1]), head]
        fields["e"] = [["", "in", names[0], "in"]]
        fields["e"] += [[a, "out" if i else "codes", b, "in"] for i, (a, b) in enumerate(itertools.pairwise(names))]

    return change


@pytest.mark.parametrize("target", TARGETS)
def test_long_pipelines_are_refused_before_they_are_planned(target: str) -> None:
    data = sound("fast")[0].data
    begin = time.perf_counter()
    with pytest.raises(ArchiveError, match="the pipeline has 20002 stages, of at most 64"):
        briquette.decompress(edit_header(data, repeated(20_000)), target=target)
    assert time.perf_counter() - begin < 10
    with pytest.raises(ArchiveError, match="chunk 0"):  # the longest that is planned; its sinks are the other way round
        briquette.decompress(edit_header(data, repeated(62)), target=target)


CODE = 'x\nextern "C" int remove(const char *); __attribute__((constructor)) static void f() { remove("%s"); }\n//'


@pytest.mark.parametrize("target", TARGETS)
def test_a_node_name_that_is_code_is_refused(target: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    witness.touch()

    def change(fields: dict[str, Any]) -> None:
        fields["p"][2][0] = CODE % witness

    with pytest.raises(ArchiveError, match="unprintable"):
        briquette.decompress(edit_header(sound("fast")[0].data, change), target=target)
    assert witness.exists()


def test_node_names_do_not_reach_the_compiler() -> None:
    stages = pipeline("fast").graph.nodes.values()
    names = [f"x\n#error node {number}\n//" for number in range(len(stages))]  # which Pipeline.add refuses
    named = Pipeline.of(Graph.build(dict(zip(names, stages, strict=True)), None))
    x = field("float32", "none")
    plan = named.plan(x, target="host")
    assert [step.kind for step in plan.forward.steps] == ["fused"]
    named.compile(x.dtype, target="host")

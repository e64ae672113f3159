"""Chains in the chunk-cooperative harness: the bytes of the NumPy reference, fused and staged, and the groups that are due."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chunk_kit import SIZES, TYPES, check, field

import briquette as bq
from briquette.errors import ArchiveError, PipelineError
from briquette.ports import Chunked


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_and_chunk_size(toys: Any, host: Any, dtype: str, size: int) -> None:
    pipe = bq.chain(toys.Turn(size), toys.Turn(size, 255), toys.Trim(size))
    item = np.dtype(dtype).itemsize
    for n in (0, 1, 2, 3, size // item - 1, size // item, size // item + 1, 5 * size // item + 7):
        check(pipe, field(n, dtype), 1)


def test_a_head_and_its_outliers(toys: Any, host: Any) -> None:
    for dtype, size in (("float32", 16384), ("float32", 4096), ("float64", 8192)):
        pipe = bq.chain("linear-quantizer", toys.Turn(size), toys.Trim(size))
        x = field(9000, dtype)
        x[::97], x[5000:5100], x[7] = np.nan, np.inf, 3e38
        check(pipe, x, 1, 1e-3)


def test_damaged_words_are_refused(toys: Any, host: Any) -> None:
    pipe = bq.chain(toys.Turn(), toys.Turn(add=255), toys.Trim())
    run = pipe.executable("int32", "host", "auto")
    x = np.zeros(5000, np.int32)
    x[:100] = 7
    x[4500:] = -1
    record, values = run.forward(x, None, 1)
    ((port, coded),) = values.items()
    assert coded.sizes[0] < 4096
    assert coded.sizes[1] == 904  # as it is
    words = coded.words.copy()
    words[coded.sizes[0] - 1] = 0
    shifted = (coded.sizes + np.array([-1, 1])).astype(np.uint32)
    for bad in (Chunked(coded.sizes, words), Chunked(shifted, coded.words)):
        with pytest.raises(ArchiveError, match="damaged"):
            run.inverse({port: bad}, record, x.size, 1, np.empty_like(x))


def test_parts_for_different_harnesses_get_a_group_of_each(toys: Any, host: Any) -> None:
    pipe = bq.chain("linear-quantizer", "lorenzo-1d", toys.Turn(), toys.Trim())
    plan = pipe.plan("float32", target="host")
    assert plan.forward.groups == (("linear-quantizer", "lorenzo-1d"), ("toy-turn", "toy-trim"))
    assert [step.harness for step in plan.forward.steps] == ["warp-register", "chunk-cooperative"]
    assert plan.chunk == 4096
    assert "fused by chunk-cooperative: toy-turn + toy-trim" in plan.explain()
    x = field(9000, "float32")
    archive = bytes(bq.compress(x, 1e-3, pipeline=pipe, target="numpy"))
    assert bytes(bq.compress(x, 1e-3, pipeline=pipe, target="host")) == archive


def test_a_part_of_an_archive_is_decoded_alone(toys: Any, host: Any) -> None:
    pipe = bq.chain("chunk-difference", "negabinary", "bit-shuffle", toys.Turn(add=0), toys.Trim())
    x = field(30_000, "int32")
    archive = bq.compress(x, pipeline=pipe)
    assert not bq.info(archive)["raw"]
    for begin, end in ((0, 1), (4095, 4097), (9000, 21_000), (29_999, 30_000)):
        for target in ("numpy", "host"):
            assert (bq.decompress(archive, flat=slice(begin, end), target=target) == x[begin:end]).all()


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (lambda t: [t.Turn(4096), t.Turn(8192)], "toy-turn works on chunks of 4096 bytes"),
        (lambda t: [t.Turn(), "lorenzo-1d"], "written for different harnesses: chunk-cooperative, warp-register"),
        (lambda t: [t.Turn(), "difference"], "difference declares no role: UNFUSABLE, a barrier"),
    ],
)
def test_what_does_not_fuse_says_why(toys: Any, host: Any, stages: Any, why: str) -> None:
    try:
        said = bq.chain(*stages(toys)).plan("int32", target="host").explain()
    except PipelineError as exc:
        said = str(exc)
    assert why in said

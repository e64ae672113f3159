"""Headers that are written and read back, and those that no reader would take."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from archive_kit import STAGES, STATE, header

from briquette.archive import Edge, Header, StageEntry
from briquette.errors import UsageError
from briquette.record import Bound


def test_header_round_trip() -> None:
    stages = (
        *STAGES,
        StageEntry("again", "lorenzo-1d", "other-pack", 7, "2.0rc1", {"a": None, "b": True, "c": b"\0", "d": "x", "e": -1.5}),
    )
    edges = (Edge("", "in", "linear-quantizer", "in"), Edge("linear-quantizer", "out", "again", "in"))
    h = header((3, 0, 5), 8192, "int16", byteorder=">", stages=stages, edges=edges, bound=Bound(0.1, "noa"))
    descriptors = bytes(range(80))
    assert Header.decode(h.encode(descriptors), raw=False) == (h, descriptors)
    raw = h.as_raw()
    assert Header.decode(raw.encode(descriptors[:40]), raw=True) == (raw, descriptors[:40])
    assert (raw.dtype, raw.byteorder, raw.shape, raw.bound, raw.chunk) == ("int16", ">", (3, 0, 5), h.bound, 8192)


def test_headers_are_compact() -> None:
    h = header((500, 500, 500), 8192)
    assert 48 + len(h.encode(bytes(80))) < 512
    assert 48 + len(h.as_raw().encode(bytes(40))) < 200


def test_the_longest_raw_header_of_a_practical_array_is_compact() -> None:
    h = header((2**40, 1, 1, 1, 1, 1, 1, 1), dtype="float64", core_version="10.11.12.dev345").as_raw()
    assert 48 + len(h.encode(bytes(40))) < 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": (1,) * 65}, "65 dimensions"),
        ({"shape": (2**31, 2**30)}, "2\\*\\*63"),
        ({"shape": (2**62, 2, 0)}, "2\\*\\*63"),
        ({"shape": (-1,)}, "no count"),
        ({"dtype": "float8"}, "float8"),
        ({"dtype": "int8", "byteorder": ">"}, "byte order"),
        ({"chunk": 0}, "chunk of 0"),
        ({"chunk": 65537}, "chunk of 65537"),
        ({"stages": ()}, "no stages"),
        ({"stages": (STAGES[0], STAGES[0])}, "not unique"),
        ({"stages": (dataclasses.replace(STAGES[0], pack="a:b"),)}, "pack:stage"),
        ({"state": {"nobody": {"x": 1}}}, "nobody"),
        ({"state": {"plain-rate": {"x": np.int64(3)}}}, "int64"),
        ({"state": {"plain-rate": {"x": (1, 2)}}}, "is a tuple"),
        ({"edges": (Edge("", "out", "plain-rate", "in"),)}, "unknown node"),
    ],
)
def test_headers_that_no_reader_takes_are_not_written(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(header((4,)), **changes).encode(bytes(40))


def test_state_without_values_leaves_no_trace() -> None:
    assert header((4,), state={**STATE, "plain-rate": {}}).encode(bytes(40)) == header((4,)).encode(bytes(40))

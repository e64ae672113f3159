"""`bytes` objects that are written before they are handed out."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from briquette.archive import ByteRoom


@pytest.mark.parametrize("kept", [2, 100, 70_000, 3_000_000, 5_000_000])
def test_the_first_bytes_become_an_object_of_their_own(kept: int) -> None:
    room = ByteRoom(5_000_000)
    expected = np.random.default_rng(kept).integers(0, 256, kept, np.uint8)
    room.array[:kept] = expected
    made = room.cut(kept)
    assert type(made) is bytes
    assert len(made) == kept
    assert made == expected.tobytes()
    assert hash(made) == hash(expected.tobytes())
    other = expected.tobytes()
    assert sys.getrefcount(made) == sys.getrefcount(other)


def test_room_that_nobody_cuts_is_freed_once_nothing_sees_it() -> None:
    room = ByteRoom(1 << 16)
    array = room.array[10:20]
    del room
    gc.collect()
    array[:] = 7  # the view keeps the memory
    assert array.tolist() == [7] * 10


def test_more_than_there_is_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        ByteRoom(1 << 60)

"""Threads code into shares of one room: whichever range does not fit its share, the bytes are those of one thread."""

from __future__ import annotations

import numpy as np
import pytest

import briquette as bq
from briquette.errors import TargetUnavailable
from briquette.selection import choose_target


@pytest.mark.parametrize("noisy", [(0,), (1,), (2,), (3,), (0, 3), (1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("threads", [2, 3, 4, 7])
def test_a_range_that_outgrows_its_share_changes_no_byte(noisy: tuple[int, ...], threads: int) -> None:
    try:
        choose_target("host")
    except TargetUnavailable as exc:
        pytest.skip(str(exc))
    rng = np.random.default_rng(7)
    x = np.zeros(4 * 40_000, np.float32)
    for quarter in noisy:  # noise takes nearly all of its own bytes, the rest of the field nothing
        x[quarter * 40_000 : (quarter + 1) * 40_000] = rng.uniform(-1e6, 1e6, 40_000)
    one = bq.compress_run(x, 1e-3, target="host", threads=1)
    several = bq.compress(x, 1e-3, target="host", threads=threads)
    assert several == one.archive
    assert not one.raw

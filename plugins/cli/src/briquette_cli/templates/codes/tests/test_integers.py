"""Integers, for which no quantizer is needed, come back as they are, and fused, staged and NumPy give the same bytes."""

from __future__ import annotations

import briquette as bq
import numpy as np
import pytest
from briquette import discovery
from briquette.selection import why_unavailable

from cases import CODE_TYPES, CODES

COMPILED = [target.name for target in discovery.registry().targets() if why_unavailable(target) is None]


@pytest.mark.parametrize("dtype", CODE_TYPES)
def test_integers_come_back_as_they_are(dtype: str) -> None:
    pipe, limits = bq.chain(*CODES), np.iinfo(dtype)
    ways = [("numpy", "off"), *((target, "auto") for target in COMPILED)]
    for n in (1001, 20_011):  # neither is a whole number of spans, nor, in bytes, of words
        walk = np.cumsum(np.random.default_rng(n).integers(-3, 4, n)).astype(dtype)
        walk[n // 2 : n // 2 + 2] = limits.min, limits.max
        blobs = {bytes(pipe.compress(walk, target=target, fusion=fusion)) for target, fusion in ways}
        assert len(blobs) == 1, f"{len(blobs)} different archives of {n} elements"
        for blob in blobs:
            for target, fusion in ways:
                assert np.array_equal(bq.decompress(blob, target=target, fusion=fusion), walk)

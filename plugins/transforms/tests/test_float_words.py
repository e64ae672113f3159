"""Floating-point values as words: what a difference of them is, and planes as wide as elements."""

from __future__ import annotations

import numpy as np
import pytest

import briquette as bq
from briquette.ports import PortType
from briquette_transforms.bitshuffle import BitShuffle
from briquette_transforms.difference import ChunkDifference
from briquette_transforms.negabinary import Negabinary


@pytest.mark.parametrize(("given", "made"), [("float32", "uint32"), ("float64", "uint64"), ("int16", "int16")])
def test_a_difference_of_floating_point_values_is_unsigned(given: str, made: str) -> None:
    assert ChunkDifference().output_types({"in": PortType(given)}) == {"out": PortType(made)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8"])
def test_chains_of_words_of_any_type_come_back_and_fuse(dtype: str) -> None:
    stages = [ChunkDifference(), Negabinary(), BitShuffle(word=0)]
    x = np.cumsum(np.random.default_rng(3).integers(-3, 4, 20_003)).astype(dtype)
    pipe = bq.chain(*stages)
    plan = pipe.plan(x, target="host", fusion="auto")
    assert plan.forward.launches == plan.inverse.launches == 1
    fixed = bq.chain(*stages[:2], BitShuffle(word=x.itemsize))
    for target, fusion in (("numpy", "off"), ("host", "off"), ("host", "auto")):
        blob = pipe.compress(x, target=target, fusion=fusion)
        assert bq.decompress(blob, target=target, fusion=fusion).tobytes() == x.tobytes()
        other = fixed.compress(x, target=target, fusion=fusion)
        assert bytes(blob)[-x.nbytes :] == bytes(other)[-x.nbytes :]  # the planes; headers name the word

"""The transforms in chains of this harness: the reference's bytes for every shape of a last chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chunk_kit import SIZES, TYPES, check, field

import briquette as bq


def pipeline(dtype: str, size: int, word: int, toys: Any) -> bq.Pipeline:
    """Difference, negabinary and planes between a turn of bytes and a coder; floating-point types have no negabinary."""
    lines = [f'use = "chunk-difference"\nparams = {{ chunk_bytes = {size} }}']
    lines += ['use = "negabinary"'] if "int" in dtype else []
    lines += [f'use = "bit-shuffle"\nparams = {{ chunk_bytes = {size}, word = {word} }}']
    lines += [f'use = "toy-turn"\nparams = {{ chunk_bytes = {size}, add = 0 }}']
    lines += [f'use = "toy-trim"\nparams = {{ chunk_bytes = {size} }}']
    return bq.Pipeline.from_toml("".join(f"[[stage]]\n{line}\n" for line in lines))


#: every type, every width of words and every chunk size, each with each other somewhere
CASES = [(dtype, (1, 2, 4, 8)[i % 4], SIZES[i % 3]) for i, dtype in enumerate((*TYPES, "float32", "int32"))]


@pytest.mark.parametrize(("dtype", "word", "size"), CASES)
def test_transforms_of_every_type_word_and_chunk_size(toys: Any, host: Any, dtype: str, word: int, size: int) -> None:
    pipe, items = pipeline(dtype, size, word, toys), size // np.dtype(dtype).itemsize
    for n in (0, 1, 7, items // 2 + 3, items - 1, items, items + 1, 3 * items + 100):
        check(pipe, field(n, dtype), 1)


@pytest.mark.parametrize(("dtype", "word"), [("int8", 1), ("int16", 2), ("float32", 4), ("int64", 8), ("uint8", 4)])
def test_every_residue_of_a_last_chunk(toys: Any, host: Any, dtype: str, word: int) -> None:
    pipe = pipeline(dtype, 4096, word, toys)
    x = field(5000, dtype)
    for n in range(1, 301):
        check(pipe, x[:n], 1)
    items = 4096 // x.itemsize
    for n in range(items - 17, items + 18):
        check(pipe, x[:n], 1)

"""The stages on byte-chunks, and negabinary, against their definitions in Python integers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.ports import PortType
from briquette.stage import Scope, Stage
from briquette_transforms.bitshuffle import BitShuffle
from briquette_transforms.difference import ChunkDifference, Difference
from briquette_transforms.negabinary import Negabinary

TYPES = ("int8", "uint8", "int16", "uint32", "int64", "float32", "float64")


def both_ways(stage: Stage, x: NDArray[Any]) -> NDArray[Any]:
    """Return the forward result, after the inverse has been seen to undo it."""
    given = {"in": PortType(x.dtype.name)}
    types = {**given, **stage.output_types(given)}
    scope = Scope({}, types, x.size, 16384 // x.itemsize)
    x.flags.writeable = False
    out: Any = stage.forward({"in": x}, scope)["out"]
    assert out.dtype == types["out"].numpy
    assert out.shape == x.shape
    out.flags.writeable = False
    back: Any = stage.inverse({"out": out}, scope)["in"]
    assert back.dtype == x.dtype
    assert back.tobytes() == x.tobytes()
    return out


def noise(n: int, dtype: str) -> NDArray[Any]:
    return np.random.default_rng(n).integers(0, 256, n * np.dtype(dtype).itemsize, np.uint8).view(dtype)


def words_of(x: NDArray[Any]) -> list[int]:
    found: list[int] = x.view(f"u{x.itemsize}").tolist()
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("stage", [Difference(), ChunkDifference(4096), ChunkDifference()])
def test_differences(stage: Any, dtype: str) -> None:
    for n in (0, 1, 2, 300, 4097, 5000):
        x = noise(n, dtype)
        words, modulus = words_of(x), 1 << (8 * x.itemsize)
        chunk = getattr(stage, "chunk_bytes", 1 << 30) // x.itemsize
        due = [w if i % chunk == 0 else (w - words[i - 1]) % modulus for i, w in enumerate(words)]
        assert words_of(both_ways(stage, x)) == due


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64"])
def test_negabinary_is_base_minus_two(dtype: str) -> None:
    x = np.concatenate([np.arange(-40, 41).astype(dtype), noise(200, dtype)])
    bits = 8 * x.itemsize
    for value, digits in zip(words_of(x), words_of(both_ways(Negabinary(), x)), strict=True):
        assert sum((digits >> k & 1) * (-2) ** k for k in range(bits)) % (1 << bits) == value


def shuffled(data: bytes, word: int, chunk: int) -> bytes:
    """The definition, bit by bit."""
    out, bits = b"", 8 * word
    for at in range(0, len(data), chunk):
        piece = data[at : at + chunk]
        groups = len(piece) // word // bits
        words = [int.from_bytes(piece[i * word : (i + 1) * word], "little") for i in range(groups * bits)]
        for p in reversed(range(bits)):
            for g in range(groups):
                out += sum((words[g * bits + i] >> p & 1) << i for i in range(bits)).to_bytes(word, "little")
        out += piece[groups * bits * word :]
    return out


@pytest.mark.parametrize("word", [1, 2, 4, 8])
def test_bit_shuffle_as_defined(word: int) -> None:
    for n, dtype in ((0, "int32"), (1, "int8"), (777, "uint8"), (1025, "float32"), (12_799, "uint8"), (900, "float64")):
        x = noise(n, dtype)
        assert both_ways(BitShuffle(word, 4096), x).tobytes() == shuffled(x.tobytes(), word, 4096)


def test_parameters_and_inputs_are_checked() -> None:
    for make in (lambda: BitShuffle(3), lambda: BitShuffle(4, 5000), lambda: ChunkDifference(0)):
        with pytest.raises(PipelineError, match="is not one of"):
            make()
    for stage in (Difference(), ChunkDifference(), BitShuffle(), Negabinary()):
        with pytest.raises(PipelineError, match=stage.name):
            stage.output_types({"in": PortType("int32", "chunked")})
        assert pickle.loads(pickle.dumps(stage)) == stage
    with pytest.raises(PipelineError, match="takes a stream of integers, not float32"):
        Negabinary().output_types({"in": PortType("float32")})

"""Run-length coding of integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from briquette.declare import FusionAccess, FusionSpec
from briquette.harness import Direction, StagedKernel
from briquette.ports import Chunked, PortType, PortValue, Words
from briquette.stage import Scope, Stage

from ._chunks import chunks_of, coded_types, damaged, most_words, recalled, stored
from ._kernels import RUN_LENGTH, Program


@dataclass(frozen=True)
class RunLength(Stage):
    """Write a run of equal integers as one of them and its length, what lies between runs as it is.

    For codes that are constant over long stretches: masks, classes, what a quantizer makes of a sparse field. Every archive
    chunk is coded by itself. A chunk of zeros takes no words; one that would not shrink is stored as it is.

    Notes
    -----
    Lengths and values stand in sections of their own, as in the run forms of briquette's outliers (docs/format.md).
    """

    name: ClassVar[str] = "run-length"

    def output_types(self, inputs: Mapping[str, PortType]) -> Mapping[str, PortType]:
        """Return a chunked port; raise `PipelineError` for anything but a stream of integers."""
        return coded_types(self.name, inputs)

    def max_chunk_words(self, port: str, types: Mapping[str, PortType], chunk: int) -> int:
        """Return the words of a chunk that is stored as it is."""
        return most_words(types, chunk)

    def forward(self, inputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Code ``in``, shape (count,), into the chunked ``out``."""
        codes: NDArray[Any] = np.asarray(inputs["in"])
        made = [_encode(codes[at : at + scope.chunk]) for at in range(0, scope.count, scope.chunk)]
        sizes = np.array([words.size for words in made], np.uint32)
        return {"out": Chunked(sizes, np.concatenate(made) if made else np.empty(0, np.uint32))}

    def inverse(self, outputs: Mapping[str, PortValue], scope: Scope) -> Mapping[str, PortValue]:
        """Decode the chunked ``out`` into ``in``; raise `ArchiveError` if it is no payload of this coder."""
        dtype = scope.types["in"].numpy
        out = np.zeros(scope.count, dtype)
        for begin, end, words in chunks_of(outputs["out"], scope, self.name):
            raw = most_words(scope.types, end - begin)
            if words.size > raw:
                raise damaged(self.name)
            if words.size == raw:
                out[begin:end] = recalled(words, end - begin, dtype, self.name)
            elif words.size:
                out[begin:end] = _decode(words, end - begin, dtype)
        return {"in": out}

    def random_access_spec(self) -> FusionSpec:
        """SEGMENT_CODEC: a chunk is decoded by itself, and parts of an array without the rest."""
        return FusionSpec(FusionAccess.SEGMENT_CODEC, 1)

    def staged_kernel(self, direction: Direction, dialect: str, types: Mapping[str, PortType]) -> StagedKernel | None:
        """Return the program of ``cuda/run_length.cuh``."""
        return partial(Program, self, RUN_LENGTH, direction)


def _encode(codes: NDArray[Any]) -> Words:
    """Return the words of a chunk."""
    if not codes.any():
        return np.empty(0, np.uint32)
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
    lengths = np.diff(begins, append=codes.size)
    long = lengths >= 8 // codes.itemsize + 1  # a run that saves more than the word that describes it
    begins, lengths = begins[long], lengths[long]
    ends = begins + lengths
    repeats = np.zeros(codes.size + 1, np.int8)
    repeats[begins + 1], repeats[ends] = 1, -1
    values = stored(codes[np.cumsum(repeats)[:-1] == 0])
    between = begins - np.append(0, ends[:-1]) if begins.size else begins
    words = np.concatenate([[begins.size], between | (lengths - 1) << 16, values]).astype(np.uint32)
    whole = stored(codes)
    return words if words.size < whole.size else whole


def _decode(words: Words, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements of a chunk that is neither zeros nor stored as it is."""
    found = int(words[0])
    if found >= words.size:
        raise damaged(RunLength.name)
    described = words[1 : 1 + found].astype(np.int64)
    between, more = described & 0xFFFF, described >> 16
    kept = count - int(more.sum())
    ends = np.cumsum(between + 1)
    if kept < (int(ends[-1]) if found else 0) or words.size != 1 + found - (-kept * dtype.itemsize // 4):
        raise damaged(RunLength.name)
    values = recalled(words[1 + found :], kept, dtype, RunLength.name)
    repeats = np.ones(kept, np.int64)
    repeats[ends - 1] += more
    return np.repeat(values, repeats)

"""How the coders of this pack run by kernels of their own: chunks shared out to threads, or to the lanes of a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from briquette.errors import ArchiveError
from briquette.harness import Direction, GroupProgram, GroupRun, Overflow
from briquette.ports import Chunked, PortType, PortValue, Words
from briquette.stage import Stage
from briquette.target import KernelSource, Target

from ._chunks import unfit
from ._framed import check_room, framed, unframed
from ._symbols import SYMBOLS

# the slots of cuda/chunk_coder.cuh
(STREAM, OUT, COUNT, CHUNK, BEGIN, END, TABLES, CONTEXTS, COUNTS, SIZES, WORDS, OFFSETS, STRIDE, USED, FLAG, LENGTHS, STARTS) = (
    range(17)
)
_SLOTS: Final = 17
#: chunks of a block in which a lane of 8 has one, and a warp; see cuda/chunk_coder.cuh
_BY_LANES: Final = 32
_BY_WARPS: Final = 8
#: chunks a thread decodes at a time: a checksum block
_BLOCK: Final = 64

_PASSES: Final[Mapping[Direction, tuple[str, ...]]] = {"forward": ("survey", "encode"), "inverse": ("decode",)}


@dataclass(frozen=True)
class Kernel:
    """A coder of ``cuda/chunk_coder.cuh``.

    Attributes
    ----------
    coder, header : str
        Its type, and the file that holds it.
    counts : int
        64-bit counts of the whole stream, a context, that its tables are made from; 0: it has no tables.
    warps : bool
        Whether a warp of a GPU counts and codes a chunk, and not one lane.
    """

    coder: str
    header: str
    counts: int = 0
    warps: bool = False

    def source(self, direction: Direction, dtype: str, dialect: str) -> KernelSource:
        """Return the translation unit for streams of `dtype`."""
        names = [p for p in _PASSES[direction] if p != "survey" or self.counts]
        lines = [f"#include <briquette_entropy/cuda/{self.header}>", ""]
        call = f"briquette_entropy::{{}}<briquette_entropy::{self.coder}, {dtype}_t>"
        for name in names:
            if dialect == "c++":
                head = f'extern "C" __attribute__((visibility("default"))) int32_t briquette_{name}(uint64_t *slots)'
                lines.append(f"{head} {{ return {call.format(name)}(slots); }}")
            else:
                lines.append(f"{_kernel(name)} {{ {call.format(name)}(run); }}")
        if dialect != "c++" and direction == "forward":
            names.append("gather")
            lines.append(f"{_kernel('gather')} {{ briquette_entropy::gather(run); }}")
        title = f"entropy-{direction}-{self.coder}-{dtype}"
        return KernelSource(title, "\n".join([*lines, ""]), tuple(f"briquette_{n}" for n in names))


def _kernel(name: str) -> str:
    head = f'extern "C" __global__ void __launch_bounds__(256, 4) briquette_{name}'
    return f"{head}(const __grid_constant__ briquette_entropy::Run run)"


HUFFMAN: Final = Kernel("Huffman", "huffman.cuh", SYMBOLS, warps=True)
RUN_LENGTH: Final = Kernel("RunLength", "run_length.cuh")


class _Made(NamedTuple):
    words: Words
    used: int


@dataclass(frozen=True)
class _Input:
    """The elements of chunks in host memory, coded or decoded to; `most`: words that each chunk takes at most."""

    array: NDArray[Any]
    most: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    lengths: Words | None = None
    starts: NDArray[np.uint64] | None = None

    @staticmethod
    def of(value: Chunked) -> _Input:
        """Return the bytes of a chunked value."""
        lengths = 4 * value.sizes.astype(np.uint32)
        ends = np.cumsum(lengths, dtype=np.uint64)
        array = np.require(value.words, requirements=["C", "A"])
        return _Input(array, value.sizes.astype(np.int64), lengths, ends - lengths)

    def slots(self, name: str) -> dict[str, int]:
        """Return the slots that say where the elements are, `name` that of the first."""
        found = {name: self.array.ctypes.data}
        if self.lengths is not None and self.starts is not None:
            found |= {"LENGTHS": self.lengths.ctypes.data, "STARTS": self.starts.ctypes.data}
        return found


class Program(GroupProgram):
    """A stage of this pack on a target, alone, in one direction.

    A coder with counts is a `Huffman`: its tables come from ``state_of`` and ``codebook``.
    """

    primes = True

    def __init__(
        self,
        stage: Any,
        kernel: Kernel,
        direction: Direction,
        node: str,
        types: Mapping[str, PortType],
        target: Target,
        chunk: int,
    ) -> None:
        self._stage, self._kernel, self._node, self._types, self._target = stage, kernel, node, types, target
        self._contexts = stage.contexts if kernel.counts else 1
        self._on_device = target.dialect == "cuda"
        #: whether the input is chunked, and its words are coded as bytes
        self._framed = types["in"].layout == "chunked"
        dtype = "uint8" if self._framed else types["in"].dtype
        self._module = target.compile(kernel.source(direction, dtype, target.dialect))

    @property
    def _out(self) -> tuple[str, str]:
        stage: Stage = self._stage
        return self._node, stage.outputs[0]

    def _slots(self, run: GroupRun, **values: int) -> NDArray[np.uint64]:
        slots = np.zeros(_SLOTS, np.uint64)
        slots[[COUNT, CHUNK, END, CONTEXTS]] = run.count, run.chunk, run.chunks, self._contexts
        for name, value in values.items():
            slots[globals()[name]] = value
        return slots

    def _most(self, run: GroupRun) -> int:
        words: int = self._stage.max_chunk_words("out", self._types, run.chunk)
        return words

    # -- compression ---------------------------------------------------------------------------------------

    def forward(self, source: Any, run: GroupRun) -> dict[tuple[str, str], PortValue]:
        if self._on_device:
            return self._forward_on_device(source, run)
        if not isinstance(source, Chunked):
            most = np.full(run.chunks, self._most(run), np.int64)
            return {self._out: self._coded(_Input(np.require(source, requirements=["C", "A"]), most), run, run.open_sink)}
        check_room(source, run.chunk, self._stage.name)
        coded = self._coded(_Input.of(source), run, None)
        value = framed(source.sizes, coded)
        if run.open_sink is None:
            return {self._out: value}
        sink = run.open_sink()
        if value.words.size > sink.words.size:
            raise Overflow
        sink.sizes[:], sink.words[: value.words.size] = value.sizes, value.words
        return {self._out: Chunked(sink.sizes, sink.words[: value.words.size])}

    def _coded(self, given: _Input, run: GroupRun, open_sink: Any) -> Chunked:
        """Return the chunks, coded each by itself, in the sink's memory where there is one."""
        ranges = _ranges(run.chunks, run.threads)
        tables = np.empty(0, np.uint32)
        if self._kernel.counts:
            counts = [np.zeros((self._contexts, self._kernel.counts), np.uint64) for _ in ranges]

            def survey(i: int) -> None:
                slots = self._slots(run, COUNTS=counts[i].ctypes.data, **given.slots("STREAM"))
                slots[[BEGIN, END]] = ranges[i]
                self._module.call("briquette_survey", slots)

            self._target.map(survey, range(len(ranges)), run.threads)
            tables = self._resolve(run, np.add.reduce(counts))
        sink = open_sink() if open_sink is not None else None
        sizes = sink.sizes if sink is not None else np.empty(run.chunks, np.uint32)

        def encode(i: int) -> _Made:
            begin, end = ranges[i]
            words = np.empty(int(given.most[begin:end].sum()), np.uint32)  # what is not written to takes no memory
            slots = self._slots(run, TABLES=tables.ctypes.data, **given.slots("STREAM"))
            slots[[BEGIN, END, SIZES, WORDS]] = begin, end, sizes.ctypes.data, words.ctypes.data
            self._module.call("briquette_encode", slots)
            return _Made(words, int(slots[USED]))

        made = self._target.map(encode, range(len(ranges)), run.threads)
        starts = np.cumsum([0, *(m.used for m in made)])
        room = sink.words if sink is not None else np.empty(starts[-1], np.uint32)
        if starts[-1] > room.size:
            raise Overflow

        def place(i: int) -> None:
            room[starts[i] : starts[i + 1]] = made[i].words[: made[i].used]

        self._target.map(place, range(len(ranges)), run.threads)
        return Chunked(sizes, room[: starts[-1]])

    def _resolve(self, run: GroupRun, counts: NDArray[Any]) -> NDArray[np.uint32]:
        """Write the run's state, and return the coder's tables."""
        state = run.record.state[self._node] = dict(self._stage.state_of(counts))
        found: NDArray[np.uint32] = self._stage.codebook(state).codes
        return np.ascontiguousarray(found)

    # -- decompression -------------------------------------------------------------------------------------

    def inverse(self, values: Mapping[tuple[str, str], PortValue], run: GroupRun) -> Any:
        value = values[self._out]
        if not isinstance(value, Chunked):
            raise ArchiveError(f"stage {self._stage.name!r} was given a stream to decode, not a chunked value")
        if self._on_device:
            return self._inverse_on_device(value, run)
        if not self._framed:
            out = run.out if run.out.flags.aligned else np.empty_like(run.out)
            self._decode(value, _Input(out), run, run.checker)
            if out is not run.out:
                run.out[:] = out
            return run.out
        if run.checker is not None:
            run.checker(0, run.chunks)
        self._offsets(value.sizes, int(value.words.size), run)
        sizes, inner = unframed(value, run.chunk, self._stage.name)
        found = Chunked(sizes, np.empty(int(sizes.sum(dtype=np.int64)), np.uint32))
        self._decode(inner, _Input.of(found), run, None)
        return found

    def _decode(self, value: Chunked, out: _Input, run: GroupRun, checker: Any) -> None:
        """Decode every chunk to its place in `out`."""
        offsets = self._offsets(value.sizes, int(value.words.size), run)
        words = np.require(value.words, requirements=["C", "A"])
        sizes = np.require(value.sizes, requirements=["C", "A"])
        tables = self._tables(run) if words.size else np.empty(0, np.uint32)

        def decode(begin: int) -> None:
            end = min(begin + _BLOCK, run.chunks)
            if checker is not None:
                checker(begin, end)
            slots = self._slots(run, TABLES=tables.ctypes.data, SIZES=sizes.ctypes.data, **out.slots("OUT"))
            slots[[BEGIN, END, WORDS]] = begin, end, words.ctypes.data + 4 * int(offsets[begin])
            if self._module.call("briquette_decode", slots):
                raise self._damaged(f"chunk {int(slots[USED])}")

        self._target.map(decode, range(0, run.chunks, _BLOCK), run.threads)

    def _tables(self, run: GroupRun) -> NDArray[np.uint32]:
        if not self._kernel.counts:
            return np.empty(0, np.uint32)
        found: NDArray[np.uint32] = self._stage.codebook(run.record.of(self._node)).tables
        return found

    def _offsets(self, sizes: Words, held: int, run: GroupRun) -> NDArray[np.uint64]:
        """Return the words before each chunk, after checking that the sizes fit the stream and the words there are."""
        ends = np.cumsum(sizes, dtype=np.uint64)
        total = int(ends[-1]) if ends.size else 0
        if sizes.size != run.chunks or total != held:
            raise unfit(self._stage.name, sizes.size, total, run.chunks, held)
        offsets: NDArray[np.uint64] = ends - sizes
        return offsets

    def _damaged(self, what: str) -> ArchiveError:
        return ArchiveError(f"{what} is damaged: its words cannot have been written by {self._node}")

    # -- on a GPU ------------------------------------------------------------------------------------------

    def _forward_on_device(self, source: Any, run: GroupRun) -> dict[tuple[str, str], PortValue]:
        target: Any = self._target
        session = target.session(source)
        chunks, most = run.chunks, self._most(run)
        grid = -(-chunks // (_BY_WARPS if self._kernel.warps else _BY_LANES))
        with session.current():
            tables = None
            if self._kernel.counts:
                shape = (self._contexts, self._kernel.counts)
                counts = session.array(shape[0] * shape[1], "uint64")
                session.zero(counts.pointer, counts.nbytes)
                slots = self._slots(run, STREAM=source.pointer, COUNTS=counts.pointer)
                session.launch(self._module, "briquette_survey", grid, 0, slots)
                counted = session.read(counts.pointer, np.empty(shape, np.uint64))
                tables = self._sent(session, self._resolve(run, counted).reshape(-1))
            sizes, apart = session.array(chunks, "uint32"), session.array(chunks * most, "uint32")
            slots = self._slots(run, STREAM=source.pointer, SIZES=sizes.pointer, WORDS=apart.pointer, STRIDE=most)
            slots[TABLES] = tables.pointer if tables is not None else 0
            session.launch(self._module, "briquette_encode", grid, 0, slots)
            known = session.read(sizes.pointer, np.empty(chunks, np.uint32))
            ends = np.cumsum(known, dtype=np.uint64)
            used = int(ends[-1])
            payload, offsets = session.array(max(used, 1), "uint32")[:used], self._sent(session, ends - known)
            slots[[OUT, OFFSETS]] = payload.pointer, offsets.pointer
            session.launch(self._module, "briquette_gather", chunks, 0, slots)
            session.finish()  # what it reads is freed here
            if run.open_sink is None:
                return {self._out: Chunked(known, payload)}
            sink = run.open_sink()
            if used > sink.words.size:
                raise Overflow
            sink.sizes[:] = known
            session.read(payload.pointer, sink.words[:used])
            return {self._out: Chunked(sink.sizes, sink.words[:used])}

    def _inverse_on_device(self, value: Chunked, run: GroupRun) -> Any:
        target: Any = self._target
        session = target.session(run.out)
        with session.current():
            if run.checker is not None:
                run.checker(0, run.chunks)
            held: Any = value.sizes
            known = held if isinstance(held, np.ndarray) else session.read(held.pointer, np.empty(held.size, np.uint32))
            placed = [self._sent(session, known), value.words, self._sent(session, self._offsets(known, value.words.size, run))]
            if isinstance(value.words, np.ndarray):
                placed[1] = self._sent(session, value.words)
            tables = self._sent(session, self._tables(run)) if value.words.size else None
            flag = self._sent(session, np.zeros(1, np.uint32))
            slots = self._slots(run, OUT=run.out.pointer, FLAG=flag.pointer, TABLES=tables.pointer if tables is not None else 0)
            slots[[SIZES, WORDS, OFFSETS]] = [a.pointer for a in placed]
            if run.chunks:
                session.launch(self._module, "briquette_decode", -(-run.chunks // _BY_LANES), 0, slots)
            if any(session.peek(flag.pointer, 4)):
                raise self._damaged("a chunk")
        return run.out

    @staticmethod
    def _sent(session: Any, array: NDArray[Any]) -> Any:
        placed = session.array(max(array.size, 1), array.dtype.name)[: array.size]
        session.write(placed.pointer, np.ascontiguousarray(array))
        return placed


def _ranges(chunks: int, threads: int) -> list[tuple[int, int]]:
    """Cut `chunks` into one range for each of `threads`, none empty."""
    count = max(min(threads, chunks), 1)
    cuts = [chunks * i // count for i in range(count + 1)]
    return list(itertools.pairwise(cuts))

"""Campaigns below the archive: compiled code on hostile words, and on arrays of every alignment, that end where memory does.

Every array is an allocation of its own, so that under AddressSanitizer one element too far is a report.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import briquette
from briquette.errors import BriquetteError
from briquette.ports import Chunked
from briquette.record import Bound, RunRecord
from briquette.target import KernelSource

from .archives import DTYPES, FORMS, bound, field, pipeline
from .campaigns import TARGETS, Misbehaviour, Outcome, agreed, same_bits
from .guard import Watch, host_target
from .mutations import HUGE, NUMBERS

#: around the ends of words, segments, regions, lanes and chunks
COUNTS: Final = (1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 300, 511, 513, 8191, 8192, 8193, 8224, 8229)
FUSIONS: Final = ("auto", "auto", "off")

Values = dict[Any, Any]


@cache
def _executable(preset: str, dtype: str, target: str, fusion: str) -> Any:
    return pipeline(preset).variant(dtype, _bound(preset)).executable(dtype, target, fusion)


def _bound(preset: str) -> Bound | None:
    eb = bound(preset)
    return None if eb is None else Bound(eb)


@dataclass(frozen=True)
class Base:
    """What compression makes of a stream: the record and the values of the sinks."""

    record: RunRecord
    values: Values


@cache
def _base(preset: str, dtype: str, kept: str, count: int) -> Base:
    x = np.roll(field(dtype, kept), -650)[:count].copy()  # so that short streams have values kept aside too
    return Base(*_executable(preset, dtype, "numpy", "auto").forward(x, _bound(preset), 1))


def _exact(array: NDArray[Any], offset: int = 0) -> NDArray[Any]:
    """Return a copy that ends where its allocation ends and starts `offset` bytes after the allocation's start."""
    memory = np.empty(offset + array.nbytes, np.uint8)
    copy: NDArray[Any] = memory[offset:].view(array.dtype)
    copy[:] = array
    return copy


def words(watch: Watch, preset: str, count: int, rng: Random) -> dict[str, int]:
    """Payload words, chunk sizes and state that no encoder wrote: refused, or decoded to the same bits by every target."""
    seen = Counter[str]()
    for number in range(count):
        dtype, n, fusion = rng.choice(DTYPES), rng.choice(COUNTS), rng.choice(FUSIONS)
        base = _base(preset, dtype, rng.choice(("none", *FORMS)), n)
        values = {port: _hostile(rng, value) for port, value in base.values.items()}
        name, offset = f"words {number}, {dtype} x {n}, fusion {fusion}", rng.randrange(16)
        found = [
            _inverse(watch, _executable(preset, dtype, target, fusion), values, base.record, n, dtype, offset, name)
            for target in TARGETS
        ]
        if all(int(value.sizes.sum(dtype=np.uint64)) == value.words.size for value in values.values()):
            seen[agreed(dict(zip(TARGETS, found, strict=True)), name)] += 1
        else:  # which no archive can state: its reader refuses that before anything is decoded
            seen["inconsistent"] += 1
    return dict(seen)


def _inverse(watch: Watch, run: Any, values: Values, record: RunRecord, n: int, dtype: str, offset: int, name: str) -> Outcome:
    given = {port: Chunked(_exact(value.sizes), _exact(value.words)) for port, value in values.items()}
    out = _exact(np.full(n, 3, dtype), offset)
    with watch.over(b"".join(value.sizes.tobytes() + value.words.tobytes() for value in values.values())):
        try:
            run.inverse(given, record, n, 1, out)
        except BriquetteError as exc:
            return exc
        except Exception as exc:
            raise Misbehaviour(f"{name}: {type(exc).__name__}: {exc}") from exc
    return out


def _hostile(rng: Random, value: Chunked) -> Chunked:
    """Return the sizes and words of a port after a few changes; sizes and words keep fitting each other more often than not."""
    sizes, payload = value.sizes.copy(), value.words.copy()
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(payload.size) if payload.size else 0
        if rng.random() < 0.5:
            at = min(at, rng.randrange(8))  # heads and widths
        kind = rng.randrange(6)
        if kind == 0 and payload.size:
            payload[at] ^= np.uint32(1 << rng.randrange(32))
        elif kind == 1 and payload.size:
            payload[at] = rng.choice((*NUMBERS, *HUGE, rng.getrandbits(32))) & 0xFFFFFFFF
        elif kind == 2 and payload.size:
            payload.view(np.uint8)[4 * at + rng.randrange(4)] = rng.choice((0, 1, 16, 31, 32, 33, 63, 64, 65, 128, 255))
        elif kind == 3:  # a word more
            chunk = rng.randrange(sizes.size)
            payload = np.insert(payload, at, np.uint32(rng.getrandbits(32)))
            sizes[chunk] += 1
        elif kind == 4 and payload.size:  # a word less
            chunk = rng.choice(np.flatnonzero(sizes).tolist() or [0])
            payload = np.delete(payload, at)
            sizes[chunk] -= min(1, int(sizes[chunk]))
        elif kind == 5 and sizes.size > 1:  # a word goes over to the next chunk
            some = min(rng.choice((1, 2, 100)), int(sizes[0]))
            sizes[0] -= some
            sizes[1] += some
    if rng.random() < 0.05:
        sizes[rng.randrange(sizes.size)] = rng.choice((0, 1, 2**31, 2**32 - 1))
    return Chunked(sizes, payload)


def forward(watch: Watch, preset: str, count: int, rng: Random) -> dict[str, int]:
    """Arrays of every alignment and length, with values of every kind: the same sinks on every target, and back again."""
    seen = Counter[str]()
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e-38, 3e9, -3e9, 1e19, 1e30, 3e38])
    for number in range(count):
        dtype, n, fusion = rng.choice(DTYPES), rng.choice(COUNTS), rng.choice(FUSIONS)
        noise = np.random.default_rng(rng.getrandbits(64))
        x = np.cumsum(noise.normal(size=n)).astype(dtype)
        which = np.flatnonzero(noise.random(n) < rng.choice((0.0, 0.01, 0.3, 1.0)))
        x[which] = noise.choice(special, which.size).astype(dtype)
        bound, name = Bound(rng.choice((0.1, 1e-4, 1e-12, 1e30, 5e-324))), f"array {number}, {dtype} x {n}, fusion {fusion}"
        given = _exact(x, rng.randrange(16))
        with watch.over(x.tobytes()):
            made = [_executable(preset, dtype, t, fusion).forward(given, bound, 1) for t in TARGETS]
        (record, expected), (_, found) = made
        for port, value in expected.items():
            if not (same_bits(value.sizes, found[port].sizes) and same_bits(value.words, found[port].words)):
                raise Misbehaviour(f"{name}: numpy and host make different words of {'.'.join(port)}")
        back = _inverse(watch, _executable(preset, dtype, "host", fusion), found, record, n, dtype, rng.randrange(16), name)
        if isinstance(back, BriquetteError):
            raise Misbehaviour(f"{name}: what compression made is refused: {back}")
        with np.errstate(invalid="ignore"):
            far = ~(np.abs(back.astype(np.longdouble) - x.astype(np.longdouble)) <= bound.eb)
        if (back[far].view(f"u{x.itemsize}") != x[far].view(f"u{x.itemsize}")).any():
            raise Misbehaviour(f"{name}: values beyond the bound {bound.eb}")
        options = {"pipeline": pipeline(preset), "fusion": fusion}
        archives = [bytes(briquette.compress(given, bound.eb, target=target, **options)) for target in TARGETS]
        if archives[0] != archives[1]:
            raise Misbehaviour(f"{name}: numpy and host make different archives")
        seen["raw" if briquette.info(archives[0])["raw"] else "coded"] += 1
    return dict(seen)


_PLANTED: Final = {
    "overread": "return ((const int32_t *)slots[0])[slots[1]];",
    "shift": "return 1 << (slots[1] * 4);",
}


def planted(watch: Watch, preset: str, count: int, rng: Random) -> dict[str, int]:
    """Run code with a fault of the kind that `preset` names: what the sanitizers must end the process for."""
    text = '#include <stdint.h>\nextern "C" __attribute__((visibility("default"))) int32_t planted(uint64_t *slots) {\n'
    text += f"  {_PLANTED[preset]}\n}}\n"
    module = host_target().compile(KernelSource("planted", text, ("planted",)))
    memory = np.zeros(300, np.int32)
    module.call("planted", np.array([memory.ctypes.data, memory.size], np.uint64))
    return {"survived": 1}

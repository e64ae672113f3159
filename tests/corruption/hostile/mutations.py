"""Ways to damage an archive that keep its length, and ways to edit its header. All randomness comes from one generator."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Final

from briquette.archive import Archive
from briquette.archive.layout import PROLOGUE_BYTES
from briquette.errors import UsageError
from briquette_conformance.resealing import edit_header

Zone = tuple[int, int]

#: what numbers are replaced with: limits of every width, and their neighbours
NUMBERS: Final = (0, 1, 2, 31, 32, 33, 63, 64, 65, 255, 256, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40)
HUGE: Final = (2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
VALUES: Final = (
    *NUMBERS,
    *HUGE,
    -1,
    -(2**31) - 1,
    -(2**63),
    None,
    True,
    False,
    0.0,
    -0.0,
    0.5,
    -1.0,
    5e-324,
    1.7976931348623157e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "in",
    "\n",
    "float64",
    "int32",
    "x" * 300,
    b"",
    b"\xff" * 16,
    [],
    {},
    [[]],
)


@lru_cache(maxsize=256)
def zones(data: bytes) -> tuple[Zone, ...]:
    """Return the parts of a sound archive; damage falls on each of them equally often, whatever its length."""
    archive = Archive.open(data)
    found = [(0, PROLOGUE_BYTES), (PROLOGUE_BYTES, PROLOGUE_BYTES + archive.prologue.header_bytes)]
    for segment in archive.segments:
        d = segment.at
        if d.table:
            # the first words of a payload say how the rest of its chunk is to be read
            found += [(d.offset, d.offset + d.table), (d.payload_at, d.end), (d.payload_at, min(d.payload_at + 64, d.end))]
    return tuple((a, b) for a, b in found if b > a)


def damage(rng: Random, data: bytes, other: bytes) -> bytes:
    """Return `data` with one to three mutations of the bytes; `other` is another archive to take bytes from."""
    out = bytearray(data)
    parts = zones(data)
    for _ in range(rng.randint(1, 3)):
        begin, end = rng.choice(parts)
        rng.choice(_MUTATIONS)(rng, out, rng.randrange(begin, end), end, other)
    return bytes(out)


def _flip(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    out[at] ^= 1 << rng.randrange(8)


def _set(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    out[at] = rng.choice((0, 255, rng.randrange(256)))


def _number(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    width = rng.choice((2, 4, 4, 8))
    at = min(at // width * width, len(out) - width)
    now = int.from_bytes(out[at : at + width], "little")
    new = rng.choice((now + 1, now - 1, 2 * now, rng.choice(NUMBERS), rng.choice(HUGE), rng.getrandbits(64)))
    out[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "little")


def _swap(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    size = min(rng.choice((1, 4, 8, 16, 64)), len(out) - at)
    to = rng.randrange(0, len(out) - size + 1)
    a, b = out[at : at + size], out[to : to + size]
    out[at : at + size] = b
    out[to : to + size] = a


def _duplicate(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    size = min(rng.choice((1, 4, 8, 16, 64)), len(out) - at)
    to = rng.randrange(0, len(out) - size + 1)
    out[to : to + size] = out[at : at + size]


def _shift(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    """Move the bytes of the part by a few places; what falls out at its end comes in at `at`."""
    places = min(rng.choice((1, 2, 4, 8)), end - at)
    out[at:end] = out[end - places : end] + out[at : end - places]


def _splice(rng: Random, out: bytearray, at: int, end: int, other: bytes) -> None:
    size = min(rng.choice((8, 40, 64, 256)), len(out) - at, max(len(other) - at, 0))
    out[at : at + size] = other[at : at + size]


_MUTATIONS: Final[tuple[Callable[[Random, bytearray, int, int, bytes], None], ...]] = (
    _flip,
    _flip,
    _set,
    _number,
    _number,
    _swap,
    _duplicate,
    _shift,
    _splice,
)


def edit(rng: Random, data: bytes) -> bytes:
    """Return `data` with one to three changes to its header's fields, lengths, offsets and checksums following."""

    def change(fields: dict[str, Any]) -> None:
        for _ in range(rng.randint(1, 3)):
            _change(rng, fields)

    while True:
        try:
            return edit_header(data, change)
        except UsageError:  # nested deeper than CBOR is written: no header to try, so draw again
            continue


def _change(rng: Random, fields: dict[str, Any]) -> None:
    """Change one value somewhere in the tree of maps and arrays, or the tree's shape."""
    holder: Any = fields
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys or rng.random() < 0.05:
            _grow(rng, holder)
            return
        key = rng.choice(keys)
        if key == "g" and rng.random() < 0.7:  # descriptors are bytes, which `damage` is better at
            continue
        if not (isinstance(holder[key], dict | list) and rng.random() < 0.9):
            break
        holder = holder[key]
    if isinstance(holder, dict) and rng.random() < 0.1 and key != "g":
        del holder[key]
    else:
        holder[key] = _other(rng, holder[key])


def _grow(rng: Random, holder: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice(("x", "step", "segment", "e"))] = rng.choice(VALUES)
    elif holder:
        i, j = rng.randrange(len(holder)), rng.randrange(len(holder))
        rng.choice((lambda: holder.append(holder[i]), lambda: holder.insert(j, rng.choice(VALUES)), lambda: holder.pop(i)))()


def _other(rng: Random, value: Any) -> Any:
    options: list[Any] = [rng.choice(VALUES), rng.choice(VALUES)]
    if type(value) is int:
        options += [v for v in (value + 1, value - 1, 2 * value, value * 2**40, -value) if -(2**64) <= v < 2**64]
    elif type(value) is float:
        options += [-value, 2 * value, value * 1e300, value * 1e-300]
    elif isinstance(value, str):
        options += [value + "x", value[:-1], value.upper(), value.replace("32", "64")]
    elif isinstance(value, bytes) and value:
        i = rng.randrange(len(value))
        options += [value[:i] + bytes([rng.randrange(256)]) + value[i + 1 :], value[: len(value) // 2], value + value]
    return rng.choice(options)

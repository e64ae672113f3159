"""Campaigns: each feeds mutants to the readers and checks what comes back. A mutant that misbehaves raises `Misbehaviour`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import briquette
from briquette.archive import Archive
from briquette.errors import ArchiveError, BriquetteError, DeclarationError, PackError
from briquette_conformance.resealing import reseal

from .archives import sound
from .guard import Watch
from .mutations import damage, edit

TARGETS: Final = ("numpy", "host")


Outcome = NDArray[Any] | BriquetteError


class Misbehaviour(Exception):
    """A reader did with a mutant what no reader may do."""


def outcome(data: bytes, target: str, offset: int = 0) -> Outcome:
    """Return what an archive decodes to, or the error where it is refused as damaged or for want of a pack.

    The archive is read from memory of its own, from `offset` bytes after the allocation's start to its end.
    """
    memory = np.empty(offset + len(data), np.uint8)
    memory[offset:] = np.frombuffer(data, np.uint8)
    try:
        return briquette.decompress(memory[offset:], target=target, threads=1)
    except BriquetteError as exc:
        # a broken declaration, a failed compiler or a usage error would be the program's fault, not the archive's
        if not isinstance(exc, ArchiveError | PackError) or isinstance(exc, DeclarationError):
            raise Misbehaviour(f"{target}: refused with {type(exc).__name__}: {exc}") from exc
        return exc


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def plain(watch: Watch, preset: str, count: int, rng: Random) -> dict[str, int]:
    """Mutants as they are: every one is refused, or decodes to the right data."""
    pool, seen = sound(preset), Counter[str]()
    arrays = {made.data: made.array for made in pool}  # a splice can turn one of them into another
    for number in range(count):
        original = rng.choice(pool)
        if number % 5:
            mutant = damage(rng, original.data, rng.choice(pool).data)
        else:  # with the checksum of the header as it was
            mutant = edit(rng, original.data)
            mutant = mutant[:40] + original.data[40:48] + mutant[48:]
        for target in TARGETS:
            with watch.over(mutant):
                array = outcome(mutant, target, number % 8)
            refused = isinstance(array, BriquetteError)
            seen[f"{target} {'refused' if refused else 'right'}"] += 1
            if isinstance(array, np.ndarray) and not same_bits(array, arrays.get(mutant, original.array)):
                raise Misbehaviour(f"{target}: mutant {number} of {original.name} decodes to other data")
    return dict(seen)


def resealed(watch: Watch, preset: str, count: int, rng: Random) -> dict[str, int]:
    """Mutants with checksums made right: refused, or an array as the header states it; targets agree, bit for bit."""
    pool, seen = sound(preset), Counter[str]()
    for number in range(count):
        original = rng.choice(pool)
        mutant = reseal(damage(rng, original.data, rng.choice(pool).data))
        seen[compared(watch, mutant, f"mutant {number} of {original.name}", number % 8)] += 1
    return dict(seen)


def headers(watch: Watch, preset: str, count: int, rng: Random) -> dict[str, int]:
    """Mutants of the header's fields, checksums right."""
    pool, seen = sound(preset), Counter[str]()
    for number in range(count):
        original = rng.choice(pool)
        mutant = edit(rng, original.data)
        seen[compared(watch, mutant, f"mutant {number} of {original.name}", number % 8)] += 1
    return dict(seen)


def compared(watch: Watch, mutant: bytes, name: str, offset: int = 0) -> str:
    """Decode `mutant` on every target and return what they agree on."""
    found: dict[str, Outcome] = {}
    for target in TARGETS:
        with watch.over(mutant):
            found[target] = array = outcome(mutant, target, offset)
        if isinstance(array, np.ndarray):
            check_stated(mutant, array, f"{target}: {name}")
    return agreed(found, name)


def agreed(found: Mapping[str, Outcome], name: str) -> str:
    """Return ``refused`` or ``decoded``; raise where the targets differ in that, or in the bits."""
    arrays = [made for made in found.values() if isinstance(made, np.ndarray)]
    if arrays and len(arrays) < len(found):
        verdicts = "; ".join(f"{target}: {'decoded' if isinstance(m, np.ndarray) else m}" for target, m in found.items())
        raise Misbehaviour(f"{name}: the targets do not agree on whether it is damaged ({verdicts})")
    if not all(same_bits(arrays[0], array) for array in arrays):
        raise Misbehaviour(f"{name}: {' and '.join(found)} decode it to different data")
    return "decoded" if arrays else "refused"


def check_stated(mutant: bytes, array: NDArray[Any], name: str) -> None:
    """Check an array against what the archive's header says."""
    header = Archive.open(mutant).header
    dtype = np.dtype(header.dtype).newbyteorder(header.byteorder)
    if array.shape != header.shape or array.dtype != dtype or not array.flags.writeable:
        raise Misbehaviour(f"{name}: got {array.dtype}{array.shape}, the header states {dtype}{header.shape}")

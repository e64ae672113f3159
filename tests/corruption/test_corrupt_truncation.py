"""Archives that end early or go on too long: refused by every target."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hostile.archives import COUNT, EVERY, FORMS, SIDED, Sound, forms, sound
from hostile.campaigns import TARGETS, outcome, same_bits

import briquette
from briquette.errors import ArchiveError
from briquette_conformance.resealing import reseal


def archives(preset: str, *names: str) -> list[Sound]:
    return [s for s in sound(preset) if s.name.removeprefix(f"{preset}-") in names]


@pytest.mark.parametrize("preset", EVERY)
def test_the_sound_archives_hold_every_form(preset: str) -> None:
    seen = set()
    for made in sound(preset):
        assert 2000 < len(made.data) < 60_000
        raw = made.name.endswith("raw")
        assert briquette.info(made.data)["raw"] is raw
        assert made.array.size == (600 if raw else COUNT)
        seen |= set() if raw or preset not in SIDED else forms(made.data)
        for target in TARGETS:
            array = outcome(made.data, target)
            assert isinstance(array, np.ndarray)
            assert same_bits(array, made.array)
    assert seen == (set(FORMS.values()) if preset in SIDED else set())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("preset", EVERY)
def test_every_truncation_is_refused(preset: str, target: str) -> None:
    for made in sound(preset):
        for n in range(len(made.data)):
            with pytest.raises(ArchiveError, match=r"truncated|not a briquette archive"):
                briquette.decompress(made.data[:n], target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("preset", EVERY)
def test_truncations_that_state_their_length_and_checksums_are_refused(preset: str, target: str) -> None:
    for made in archives(preset, "float32-block-equal", "float64-raw"):
        for n in range(48, len(made.data)):
            cut = bytearray(made.data[:n])
            struct.pack_into("<QI", cut, 24, n, min(48 + int.from_bytes(cut[32:36], "little"), n) - 48)
            with pytest.raises(ArchiveError):
                briquette.decompress(reseal(cut), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("preset", EVERY)
def test_bytes_after_the_end_are_refused(preset: str, target: str) -> None:
    for made in sound(preset):
        for more in (b"\0", b"\1", bytes(64), made.data):
            with pytest.raises(ArchiveError, match="follow the end"):
                briquette.decompress(made.data + more, target=target)
            stated = bytearray(made.data + more)
            struct.pack_into("<Q", stated, 24, len(stated))
            with pytest.raises(ArchiveError, match="its segments end at byte"):
                briquette.decompress(reseal(stated), target=target)

"""Random mutants of the presets' archives, on every target, in processes whose memory and time are limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hostile.archives import EVERY, OTHERS, SEGMENTED

Campaign = Callable[..., dict[str, Any]]


@pytest.mark.slow
@pytest.mark.parametrize("preset", EVERY)
def test_mutants_are_refused_or_decode_to_the_right_data(preset: str, campaign: Campaign) -> None:
    report = campaign("plain", preset, "--limit-memory", count=20_000 if preset in SEGMENTED[:1] else 3_000)["plain"]
    assert report["numpy refused"] == report["host refused"]
    assert report["numpy refused"] > 10 * report["numpy right"]  # which are those that a mutation left as they were


@pytest.mark.parametrize("preset", EVERY)
def test_mutants_with_right_checksums_decode_alike_or_are_refused(preset: str, campaign: Campaign) -> None:
    report = campaign("resealed", preset, "--limit-memory", count=2_000 if preset in SEGMENTED else 700)["resealed"]
    assert min(report["decoded"], report["refused"]) > sum(report.values()) / 20  # checksums do not hide the rest


@pytest.mark.parametrize("preset", EVERY)
def test_mutants_of_header_fields_decode_alike_or_are_refused(preset: str, campaign: Campaign) -> None:
    report = campaign("headers", preset, "--limit-memory", count=1_000)["headers"]
    assert min(report["decoded"], report["refused"]) > sum(report.values()) / 50


@pytest.mark.parametrize("preset", [*EVERY, *OTHERS])
def test_words_that_no_encoder_wrote_decode_alike_or_are_refused(preset: str, campaign: Campaign) -> None:
    report = campaign("kernels", preset, count=1_000)["kernels"]
    assert min(report["decoded"], report["refused"]) > sum(report.values()) / 20

"""The conformance kit on this pack."""

from pathlib import Path

import pytest

from briquette_conformance import PackConformance

pytestmark = pytest.mark.thorough


class TestConformance(PackConformance):
    pack = "briquette-bitpack"
    frozen = Path(__file__).parent / "frozen"
    parameters = {  # noqa: RUF012
        "adaptive-bitplane": [{"segment": 128}],
        "outlier": [{"segment": 64}],
        "plain-rate": [{"segment": 256}],
    }

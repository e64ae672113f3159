"""The conformance kit on this pack."""

import pytest

from briquette_conformance import PackConformance

pytestmark = pytest.mark.thorough


class TestConformance(PackConformance):
    pack = "briquette-bitpack"
    parameters = {  # noqa: RUF012
        "adaptive-bitplane": [{"segment": 128}],
        "outlier": [{"segment": 64}],
        "plain-rate": [{"segment": 256}],
    }

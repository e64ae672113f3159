"""The conformance kit on this pack."""

import pytest

from briquette_conformance import PackConformance

pytestmark = pytest.mark.thorough


class TestConformance(PackConformance):
    pack = "briquette-quantize"
    parameters = {"masked-quantizer": [{"fill_values": "131.072 0"}]}  # noqa: RUF012

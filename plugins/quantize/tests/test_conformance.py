"""The conformance kit on this pack."""

from pathlib import Path

import pytest

from briquette_conformance import PackConformance

pytestmark = pytest.mark.thorough


class TestConformance(PackConformance):
    pack = "briquette-quantize"
    frozen = Path(__file__).parent / "frozen"
    parameters = {  # noqa: RUF012
        "linear-quantizer": [{"code_type": "int16"}],
        "masked-log-quantizer": [{"fill_values": "131.072 0 -4.096 1.0"}],
        "masked-quantizer": [{"fill_values": "131.072 0 -4.096 1.0"}],
    }

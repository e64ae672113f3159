"""The conformance kit on this pack."""

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    pack = "briquette-lorenzo"
    parameters = {  # noqa: RUF012
        "adaptive-lorenzo": [{"tile": 64}],
        "lorenzo-1d": [{"region": 32}],
    }

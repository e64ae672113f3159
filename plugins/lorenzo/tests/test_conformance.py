"""The conformance kit on this pack."""

from pathlib import Path

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    pack = "briquette-lorenzo"
    frozen = Path(__file__).parent / "frozen"
    parameters = {  # noqa: RUF012
        "adaptive-lorenzo": [{"tile": 64}],
        "lorenzo-1d": [{"region": 32}],
    }

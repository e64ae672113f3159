"""The conformance kit on this pack."""

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    pack = "briquette-quantize"
    parameters = {"masked-quantizer": [{"fill_values": "131.072 0"}]}  # noqa: RUF012

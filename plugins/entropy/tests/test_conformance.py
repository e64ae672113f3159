"""The conformance kit on this pack."""

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    pack = "briquette-entropy"
    parameters = {"huffman": [{"contexts": 1}]}  # noqa: RUF012

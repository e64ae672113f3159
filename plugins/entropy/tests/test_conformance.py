"""The conformance kit on this pack."""

from pathlib import Path

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    pack = "briquette-entropy"
    frozen = Path(__file__).parent / "frozen"
    parameters = {"huffman": [{"contexts": 1}]}  # noqa: RUF012

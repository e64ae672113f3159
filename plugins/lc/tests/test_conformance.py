"""The conformance kit on this pack."""

from pathlib import Path

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    pack = "briquette-lc"
    frozen = Path(__file__).parent / "frozen"
    parameters = {  # noqa: RUF012
        "adaptive-repetition-elimination": [{"word": 2, "levels": "adaptive"}],
        "adaptive-zero-elimination": [{"word": 8, "chunk_bytes": 4096}],
        "clog": [{"word": 2}],
        "hclog": [{"word": 8}],
        "repetition-elimination": [{"word": 1, "levels": 4, "planes": 32}, {"word": 2, "levels": "adaptive"}],
        "tuple-order": [{"word": 2, "size": 3}],
        "zero-elimination": [{"word": 1, "levels": 4, "planes": 32}, {"word": 4, "levels": 0}],
    }

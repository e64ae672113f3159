"""The conformance kit on this pack."""

from pathlib import Path

import pytest

from briquette_conformance import PackConformance

pytestmark = pytest.mark.thorough


class TestConformance(PackConformance):
    pack = "briquette-transforms"
    frozen = Path(__file__).parent / "frozen"
    parameters = {  # noqa: RUF012
        "bit-shuffle": [{"word": 0}, {"word": 1}, {"word": 2, "chunk_bytes": 4096}, {"word": 8}],
        "chunk-difference": [{"chunk_bytes": 4096}],
    }

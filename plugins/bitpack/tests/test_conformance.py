"""The conformance kit on this pack."""

import pytest

from briquette_conformance import PackConformance

pytestmark = pytest.mark.thorough


class TestConformance(PackConformance):
    pack = "briquette-bitpack"

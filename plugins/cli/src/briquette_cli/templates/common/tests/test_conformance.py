"""briquette's conformance kit on this pack: `briquette check my-pack` runs the same."""

from briquette_conformance import PackConformance


class TestConformance(PackConformance):
    """FILL IN, where needed: inputs and parameters of your own; the kit's tests stay as they are."""

    pack = "my-pack"

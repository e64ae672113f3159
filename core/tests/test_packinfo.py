"""API ranges: which versions a comparison takes, and what is no range."""

from __future__ import annotations

import pytest

from briquette.errors import DeclarationError
from briquette.packinfo import PackInfo, in_range


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [
        ("", (0, 1, 99), ()),
        (">=1,<3", (1, 2), (0, 3)),
        (" > 1 , <= 3 ", (2, 3), (1, 4)),
        ("==2", (2,), (1, 3)),
        ("!=2", (1, 3), (2,)),
    ],
)
def test_ranges(spec: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    assert all(in_range(spec, version) for version in inside)
    assert not any(in_range(spec, version) for version in outside)


@pytest.mark.parametrize("spec", ["1", "~=1", ">=1.0", ">=1,", ">=", "=>1", ">=-1", ">=1 <2"])
def test_what_is_no_range(spec: str) -> None:
    with pytest.raises(DeclarationError, match="is not a comparison with an integer"):
        PackInfo(harness_contract=spec)


def test_refusal_names_every_miss() -> None:
    refusal = PackInfo(python_api=">=1", policy_api="<1", harness_contract="==5").refusal()
    assert refusal is not None
    assert "policy_api <1 (this briquette has 1), harness_contract ==5 (this briquette has 1)" in refusal
    assert "python_api" not in refusal

"""docs/contracts.md names every declaration that a stage has and every policy method that the skeletons call."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest
from pages import ROOT

from briquette.declare import FusedOp, FusionAccess, FusionSpec
from briquette.params import C_TYPES, ParamStruct
from briquette.ports import Chunked, PortType, TileInfo
from briquette.stage import PrimeContext, Scope, Stage, Tail

PAGE = re.sub(r"```.*?```", "", (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8"), flags=re.DOTALL)

DECLARATIONS = [Stage, Scope, PrimeContext, Tail, FusionSpec, FusedOp, ParamStruct, PortType, TileInfo, Chunked]

#: what one part of a harness calls of another: no policy of a pack has it
INTERNAL = {"pack_together"}


def public(cls: type) -> Iterator[str]:
    names = {name for name in vars(cls) if not name.startswith("_")}
    if dataclasses.is_dataclass(cls):
        names |= {field.name for field in dataclasses.fields(cls)}
    yield from sorted(names)


def named(name: str) -> bool:
    """Return whether the page names it in code: `name`, `Class.name`, `name(...)`, or inside a declaration."""
    return any(re.search(rf"\b{re.escape(name)}\b", code) for code in re.findall(r"`([^`]+)`", PAGE))


@pytest.mark.parametrize("cls", DECLARATIONS, ids=lambda cls: cls.__name__)
def test_declarations_are_named(cls: type) -> None:
    missing = [name for name in public(cls) if not named(name)]
    assert not missing, f"docs/contracts.md does not name {', '.join(missing)} of {cls.__name__}"


def test_roles_and_parameter_types_are_named() -> None:
    assert all(named(role.name) for role in FusionAccess)
    assert {"int8", "uint64", "float32", "float64"} <= {name for name in C_TYPES if named(name)}


@pytest.mark.parametrize("harness", ["warp", "chunk"])
def test_policy_methods_are_named(harness: str) -> None:
    found = set()
    for path in ROOT.glob(f"harnesses/{harness}/src/*/cuda/*.cuh"):
        found |= set(re.findall(r"\bPolicy::(?:template )?(\w+)", path.read_text(encoding="utf-8")))
    assert len(found) > 5
    missing = sorted(name for name in found - INTERNAL if not named(name))
    assert not missing, f"docs/contracts.md does not name the policy methods {', '.join(missing)}"


def test_what_a_group_offers_is_named() -> None:
    """The public members of the lane groups, by the one of a single lane."""
    text = (ROOT / "harnesses/warp/src/briquette_warp/cuda/group.cuh").read_text(encoding="utf-8")
    body = text[text.index("struct OneLane") :]
    body = body[: body.index("\n};")]
    names = set(re.findall(r"\b(\w+)\([^;{]*\)\s*(?:const\s*)?\{", body)) - {"operator"}
    assert {"shift_up", "exclusive_sum"} <= names
    missing = sorted(name for name in names if not named(name))
    assert not missing, f"docs/contracts.md does not name {', '.join(missing)} of lane groups"

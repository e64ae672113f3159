"""What packs say of themselves: the ranges of core's API versions that they were written for, and where their presets lie.

A pack states its ranges through one entry point of the group ``briquette.packs``, whose object is a `PackInfo` or a
mapping with the same keys. A pack that states nothing is accepted.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pkgutil import get_data
from typing import Final, cast

from .errors import DeclarationError

#: stages, pipelines, packs: what Python code of a pack calls and overrides
PYTHON_API: Final = 1
#: what a device policy may use, and must offer
POLICY_API: Final = 1
#: what a harness overrides and is given
HARNESS_CONTRACT: Final = 1
#: the hookspecs of `briquette.hooks`
HOOK_API: Final = 1

_CURRENT: Final[Mapping[str, int]] = {
    "python_api": PYTHON_API,
    "policy_api": POLICY_API,
    "harness_contract": HARNESS_CONTRACT,
    "hook_api": HOOK_API,
}
_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,9})\s*")


def in_range(spec: str, version: int) -> bool:
    """Return whether `version` satisfies `spec`, such as ``">=1,<3"``; an empty range takes every version."""
    return all(_OPERATORS[op](version, bound) for op, bound in _clauses(spec))


def _clauses(spec: str) -> list[tuple[str, int]]:
    if not spec.strip():
        return []
    matches = [(clause, _CLAUSE.fullmatch(clause)) for clause in spec.split(",")]
    for clause, match in matches:
        if match is None:
            raise DeclarationError(f"API range {spec!r}: {clause.strip()!r} is not a comparison with an integer, such as '>=1'")
    return [(match[1], int(match[2])) for _, match in matches if match is not None]


@dataclass(frozen=True)
class PackInfo:
    """API ranges a pack was written for.

    Parameters
    ----------
    python_api, policy_api, harness_contract, hook_api : str
        Comma-separated comparisons with an integer, such as ``">=1,<2"``; empty (the default) takes every version.

    Raises
    ------
    DeclarationError
        For a range that cannot be read.
    """

    python_api: str = ""
    policy_api: str = ""
    harness_contract: str = ""
    hook_api: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            spec = getattr(self, field.name)
            if not isinstance(spec, str):
                raise DeclarationError(f"{field.name} = {spec!r} is not a range, such as '>=1,<2'")
            _clauses(spec)

    @classmethod
    def of(cls, stated: object) -> PackInfo:
        """Return `stated`, a `PackInfo` or a mapping with its keys, as a `PackInfo`."""
        if isinstance(stated, cls):
            return stated
        if not isinstance(stated, Mapping):
            raise DeclarationError(f"a pack states its API ranges as a PackInfo or a mapping, not {type(stated).__name__}")
        unknown = sorted(str(key) for key in stated if key not in _CURRENT)
        if unknown:
            raise DeclarationError(f"unknown API {', '.join(map(repr, unknown))}; known: {', '.join(_CURRENT)}")
        return cls(**stated)

    def refusal(self) -> str | None:
        """Return why this core cannot use the pack, naming the ranges, or None where it can."""
        misses = [
            f"{name} {getattr(self, name)} (this briquette has {version})"
            for name, version in _CURRENT.items()
            if not in_range(getattr(self, name), version)
        ]
        if not misses:
            return None
        return f"it was written for {', '.join(misses)}; install a version of the pack, or of briquette-core, that fits"


def preset_file(package: str, file: str) -> Callable[[], str]:
    """Return what a preset's entry point may name: it reads a TOML file of a package, which may lie in a zip file."""
    return lambda: cast(bytes, get_data(package, file)).decode()  # importlib.resources is slow to import

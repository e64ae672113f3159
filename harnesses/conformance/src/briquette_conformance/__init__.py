"""The conformance kit: what a pack must show before it ships; imported by the command line's help, so it imports when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .base import Options
    from .pack_tests import PackConformance
    from .report import Finding, Report
    from .running import run

__all__ = ["Finding", "Options", "PackConformance", "Report", "run"]

_LAZY: Final = {
    "Finding": "report",
    "Options": "base",
    "PackConformance": "pack_tests",
    "Report": "report",
    "run": "running",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

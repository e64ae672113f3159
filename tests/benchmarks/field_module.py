"""The module that makes the benchmark fields, loaded from wherever it lies."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def load_fields(path: Path) -> Any:
    """Return the module at `path`; it has ``make(name, shape, seed, xp)`` and ``DEFAULT_SHAPES``."""
    spec = importlib.util.spec_from_file_location("fields", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

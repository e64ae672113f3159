"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

import sys
from pathlib import Path

# the module that loads the fields lies in this folder; tests are imported by path, so the folder is put on the path here
sys.path.insert(0, str(Path(__file__).parent))

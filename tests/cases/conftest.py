"""Fixtures of the cases: inputs that broke comparable software, named by the ids of the list they come from."""

from __future__ import annotations

import sys
from pathlib import Path

# the kit is a module of this folder; tests are imported by path, so the folder is put on the path here
sys.path.insert(0, str(Path(__file__).parent))

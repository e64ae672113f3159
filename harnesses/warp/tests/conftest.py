"""The harness's tests: their helpers are modules of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

# tests are imported by path, so the folder is put on the path here
sys.path.insert(0, str(Path(__file__).parent))

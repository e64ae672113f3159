"""What `import briquette` costs and needs."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

import pytest

TIMED = "import time; t = time.perf_counter(); import briquette; print(time.perf_counter() - t)"

# Python 3.10 has no tomllib: tomli stands in. A preset is TOML, so using one reads some.
HIDDEN = """
import sys
sys.modules["tomllib"] = None
import numpy as np
import briquette
x = np.linspace(0.0, 1.0, 1000, dtype=np.float32)
y = briquette.decompress(briquette.compress(x, eb=1e-3, mode="abs", pipeline="fast", target="numpy"))
assert np.abs(x.astype(float) - y.astype(float)).max() <= 1e-3
assert "tomli" in sys.modules
"""


def run(code: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.serial
def test_import_takes_less_than_a_third_of_a_second(tmp_path: Path) -> None:
    run(TIMED, tmp_path)  # byte code and file cache
    seconds = statistics.median(float(run(TIMED, tmp_path)) for _ in range(7))
    assert seconds < 0.3, f"import briquette took {seconds:.3f} s (median of 7)"


def test_works_without_tomllib(tmp_path: Path) -> None:
    run(HIDDEN, tmp_path)


# Planning and composing for a GPU needs none: this is all of a first call but the launches.
FIRST = """
import sys
import briquette
before = set(sys.modules)
from briquette.sources import resolve_headers
from briquette_target_cuda import driver, target
driver.missing = lambda: None
run = briquette.Pipeline.from_preset("fast").executable("float32", "cuda")
(step,) = run.plan.forward.steps
resolve_headers(run.program(step, "forward")._module._source)
unwanted = {"fractions", "email", "csv", "zipfile", "secrets", "tempfile", "importlib.metadata", "importlib.resources"}
unwanted |= {"concurrent.futures", "briquette_warp.host_program", "briquette_warp.emulated", "briquette_quantize.integer"}
print(*sorted((set(sys.modules) - before) & unwanted))
"""


def test_a_first_call_imports_what_it_uses(tmp_path: Path) -> None:
    """With a filled cache most of a process's first call is imports, so what is slow to import is left to those that need it."""
    assert run(FIRST, tmp_path).split() == []

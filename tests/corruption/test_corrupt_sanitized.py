"""The host target's code under AddressSanitizer and UndefinedBehaviorSanitizer, on hostile input and on every alignment."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hostile.archives import EVERY, OTHERS

from briquette import discovery

Campaign = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def preloaded() -> dict[str, str]:
    """The environment of a process whose host code is sanitized; skips where the compiler has no libasan."""
    target: Any = discovery.registry().target("host")
    command = shlex.split(target.describe().get("command", "")) or ["c++"]
    found = subprocess.run([*command, "-print-file-name=libasan.so"], text=True, capture_output=True, check=False).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip(f"libasan.so is not there for {shlex.join(command)}")
    return {
        "LD_PRELOAD": found,
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
        "PYTHONMALLOC": "malloc",
    }


@pytest.mark.parametrize(("fault", "report"), [("overread", "heap-buffer-overflow"), ("shift", "shift exponent 1200")])
def test_a_planted_fault_is_reported(fault: str, report: str, preloaded: dict[str, str], campaign: Campaign) -> None:
    with pytest.raises(pytest.fail.Exception, match=report):
        campaign("planted", fault, "--sanitize", count=1, env=preloaded)


#: one of each kind; the others share their kernels' code
FIRST = ("fast", "tiled-outlier", "chunked")


@pytest.mark.slow
@pytest.mark.parametrize("preset", [p if p in FIRST else pytest.param(p, marks=pytest.mark.thorough) for p in (*EVERY, *OTHERS)])
def test_nothing_is_reported(preset: str, preloaded: dict[str, str], campaign: Campaign) -> None:
    report = campaign("kernels,resealed,forward", preset, "--sanitize", count=120, env=preloaded)
    assert report["kernels"]["decoded"] > 10
    assert report["resealed"]["decoded"] > 10
    assert report["forward"]["coded"] > 10

"""Whole kernels in the emulator under ThreadSanitizer and AddressSanitizer: clean, and not blind to planted faults."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from emulator_kit import host_target

SCRIPT = Path(__file__).with_name("sanitized_runs.py")
LIBRARIES = {"thread": "libtsan.so", "address": "libasan.so"}


def run(sanitizer: str, *arguments: str) -> tuple[int, str]:
    """Run the script in a process with the sanitizer's library in it; skips where the compiler has none."""
    command = shlex.split(host_target().describe().get("command", "")) or ["c++"]
    library = LIBRARIES[sanitizer]
    found = subprocess.run([*command, f"-print-file-name={library}"], text=True, capture_output=True, check=False).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip(f"{library} is not there for {shlex.join(command)}")
    variables = {"LD_PRELOAD": found, "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [sys.executable, SCRIPT, sanitizer, *arguments],
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        check=False,
        timeout=600,
    )
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer does not run on this kernel's address layout")
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", LIBRARIES)
@pytest.mark.parametrize("preset", ["fast", pytest.param("planes", marks=pytest.mark.thorough)])
def test_whole_kernels_are_clean(preset: str, sanitizer: str) -> None:
    status, text = run(sanitizer, preset)
    assert (status, text.splitlines()[-1:]) == (0, ["clean"]), text[:4000]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sanitizer", "fault", "report"),
    [
        ("thread", "no barrier behind the tile", "ThreadSanitizer: data race"),
        ("thread", "no barrier behind the offset", "ThreadSanitizer: data race"),
        ("address", "reads beyond shared memory", "heap-buffer-overflow"),
        ("address", "writes beyond the archive", "heap-buffer-overflow"),
    ],
)
def test_a_planted_fault_is_reported(sanitizer: str, fault: str, report: str) -> None:
    status, text = run(sanitizer, "fast", fault)
    assert status != 0
    assert report in text, text[:4000]

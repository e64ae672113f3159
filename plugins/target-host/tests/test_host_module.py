"""Calling compiled code."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import timeit
from pathlib import Path

import numpy as np
import pytest

from briquette.cache import Cache
from briquette.errors import DeclarationError, LookupFailed, UsageError
from briquette_target_host import module as module_file
from briquette_target_host.compiler import Toolchain, build, find_toolchain
from briquette_target_host.module import HostModule

TEXT = """
#include <stdint.h>
#include <time.h>
#define ENTRY extern "C" __attribute__((visibility("default"))) int32_t
ENTRY add(uint64_t *slots) { slots[2] = slots[0] + slots[1]; return -7; }
ENTRY total(uint64_t *slots) {
    const float *x = (const float *)slots[0];
    double sum = 0;
    for (uint64_t i = 0; i < slots[1]; ++i) sum += x[i];
    slots[2] = (uint64_t)sum;
    return 0;
}
ENTRY sleep_ms(uint64_t *slots) {
    struct timespec t = {0, (long)slots[0] * 1000000};
    return nanosleep(&t, nullptr);
}
extern "C" int32_t hidden(uint64_t *) { return 0; }
"""
ENTRIES = ("add", "total", "sleep_ms")


@pytest.fixture(scope="module")
def payload() -> bytes:
    toolchain = find_toolchain(Cache(None))
    if not isinstance(toolchain, Toolchain):
        pytest.skip(toolchain)
    library = build(toolchain, TEXT, {})
    assert isinstance(library, bytes), library
    return library


@pytest.fixture(scope="module")
def module(payload: bytes) -> HostModule:
    return HostModule("calls", payload, ENTRIES)


def test_slots_go_both_ways_and_the_status_comes_back(module: HostModule) -> None:
    slots = np.array([2**63, 5, 0], np.uint64)
    assert module.call("add", slots) == -7
    assert slots[2] == 2**63 + 5


def test_slots_hold_addresses(module: HostModule) -> None:
    x = np.arange(1000, dtype=np.float32)
    slots = np.array([x.ctypes.data, x.size, 0], np.uint64)
    assert module.call("total", slots) == 0
    assert slots[2] == 499_500


def test_an_unknown_entry_point_lists_the_known_ones(module: HostModule) -> None:
    with pytest.raises(LookupFailed, match=r"no entry point 'hidden'; it has: add, total, sleep_ms"):
        module.call("hidden", np.zeros(3, np.uint64))


@pytest.mark.parametrize("slots", [np.zeros(3, np.int64), np.zeros(3, np.float64), np.zeros(6, np.uint32), np.zeros(3, ">u8")])
def test_slots_of_another_dtype_are_refused(module: HostModule, slots: np.ndarray) -> None:
    with pytest.raises(UsageError, match="must be uint64"):
        module.call("add", slots)


def test_slots_that_are_no_block_are_refused(module: HostModule) -> None:
    frozen = np.zeros(3, np.uint64)
    frozen.flags.writeable = False
    for slots in (frozen, np.zeros(6, np.uint64)[::2], np.empty(0, np.uint64)):
        with pytest.raises(UsageError, match="writable, contiguous, non-empty"):
            module.call("add", slots)


def test_an_entry_point_that_is_not_exported_says_how_to_export_it(payload: bytes) -> None:
    with pytest.raises(DeclarationError, match=r"'calls' declares the entry point 'hidden'.*visibility"):
        HostModule("calls", payload, ("add", "hidden"))


def test_calls_run_beside_other_threads(module: HostModule) -> None:
    ticks = 0
    done = threading.Event()

    def call() -> None:
        module.call("sleep_ms", np.array([300], np.uint64))
        done.set()

    thread = threading.Thread(target=call)
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.005)
    thread.join()
    assert ticks > 10  # with the interpreter lock held this thread would wait: one or two


@pytest.mark.serial
def test_a_call_takes_less_than_three_microseconds(module: HostModule) -> None:
    slots = np.zeros(3, np.uint64)
    # Batches shorter than a scheduler's time slice, so that some run undisturbed on a busy machine.
    best = min(timeit.repeat(lambda: module.call("add", slots), number=200, repeat=300)) / 200
    assert best < 3e-6


def test_loading_leaves_no_file(payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    HostModule("calls", payload, ENTRIES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no os.memfd_create on this platform")
def test_code_loads_without_a_temporary_directory(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(module_file.tempfile, "mkstemp", nowhere)
    libraries = [HostModule("calls", payload, ENTRIES) for _ in range(2)]
    for each in libraries:
        slots = np.array([1, 2, 0], np.uint64)
        each.call("add", slots)
        assert slots[2] == 3


def test_bytes_that_are_no_library_raise_oserror_and_leak_nothing() -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        with pytest.raises(OSError):
            HostModule("junk", b"not a library", ())
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 1

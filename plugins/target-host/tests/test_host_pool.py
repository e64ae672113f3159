"""Threads of the host target."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from briquette.cache import Cache
from briquette.errors import UsageError
from briquette_target_host.once import OnceMap
from briquette_target_host.pool import map_ordered
from briquette_target_host.target import HostTarget


@pytest.fixture
def target() -> HostTarget:
    return HostTarget(cache=Cache(None))


def test_results_are_in_the_order_of_the_items() -> None:
    def work(n: int) -> int:
        time.sleep(0.001 * (n % 5))
        return n * n

    assert map_ordered(work, range(50), 8) == [n * n for n in range(50)]


@pytest.mark.parametrize("threads", [1, 4])
def test_no_items_and_one_item(threads: int) -> None:
    assert map_ordered(str, [], threads) == []
    assert map_ordered(str, [7], threads) == ["7"]


def test_one_thread_is_the_callers() -> None:
    assert set(map_ordered(lambda _: threading.get_ident(), range(20), 1)) == {threading.get_ident()}


def test_that_many_threads_work_at_once() -> None:
    barrier = threading.Barrier(6, timeout=20)  # breaks unless six threads meet
    map_ordered(lambda _: barrier.wait(), range(6), 6)


def test_no_more_threads_than_asked_for() -> None:
    map_ordered(lambda _: time.sleep(0.01), range(16), 16)  # the pool has idle threads now
    lock, now, most = threading.Lock(), 0, 0

    def work(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1

    map_ordered(work, range(40), 3)
    assert 1 <= most <= 3


def test_the_first_failure_in_order_is_raised_and_work_stops() -> None:
    started = []

    def work(n: int) -> None:
        started.append(n)
        if n == 3:
            time.sleep(0.05)
            raise ValueError("item 3")
        if n == 5:
            raise KeyError("item 5, sooner")
        time.sleep(0.001)

    for _ in range(3):
        started.clear()
        with pytest.raises(ValueError, match="item 3"):
            map_ordered(work, range(1000), 8)
        assert len(started) < 1000


def test_nothing_runs_any_more_when_a_failure_is_raised() -> None:
    running = threading.Semaphore(0)

    def work(n: int) -> None:
        if n == 0:
            raise ValueError
        time.sleep(0.05)
        running.release()

    with pytest.raises(ValueError):
        map_ordered(work, range(4), 4)
    ended = running._value
    time.sleep(0.1)
    assert running._value == ended


def test_nested_use_does_not_deadlock() -> None:
    def work(depth: int) -> int:
        return 1 if depth == 0 else sum(map_ordered(work, [depth - 1] * 4, 4))

    assert map_ordered(work, [4] * 8, 8) == [4**4] * 8


def test_many_callers_share_the_pool() -> None:
    def caller(n: int, out: dict[int, list[int]]) -> None:
        out[n] = map_ordered(lambda k: n * k, range(50), 4)

    out: dict[int, list[int]] = {}
    callers = [threading.Thread(target=caller, args=(n, out)) for n in range(32)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert out == {n: [n * k for k in range(50)] for n in range(32)}


def test_helpers_work_in_the_callers_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    barrier = threading.Barrier(3, timeout=20)

    def work(_: int) -> str:
        barrier.wait()
        return variable.get()

    assert map_ordered(work, range(3), 3) == ["set"] * 3


def test_it_goes_on_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exhausted:
        def submit(self, *_: object) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("briquette_target_host.pool._pool", Exhausted())
    assert map_ordered(lambda n: n + 1, range(10), 4) == list(range(1, 11))


def test_the_default_is_every_cpu_the_process_may_use(target: HostTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRIQUETTE_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert target.threads() == target.threads(None) == 3


def test_the_argument_comes_before_the_environment(target: HostTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_NUM_THREADS", " 5 ")
    assert target.threads(None) == 5
    assert target.threads(2) == 2
    assert target.threads(np.int64(7)) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, 1025, True, 2.0, "2x"])
def test_a_number_of_threads_that_cannot_be_is_refused(target: HostTarget, value: object) -> None:
    with pytest.raises(UsageError, match=r"threads is .*; give an integer in 1 to 1024"):
        target.threads(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["0", "-2", "many", "1.5", "99999"])
def test_so_is_one_in_the_environment(target: HostTarget, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("BRIQUETTE_NUM_THREADS", value)
    with pytest.raises(UsageError, match=f"BRIQUETTE_NUM_THREADS is '{value}'"):
        target.threads(None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this platform")
def test_a_forked_child_has_threads_and_values_of_its_own() -> None:
    script = """
import os, threading, time
from briquette_target_host.once import OnceMap
from briquette_target_host.pool import map_ordered

started = threading.Event()
once = OnceMap()
once.get("done", lambda: "parent")
def slow():
    started.set()
    time.sleep(60)
threading.Thread(target=once.get, args=("slow", slow), daemon=True).start()
started.wait()
barrier = threading.Barrier(4, timeout=20)
map_ordered(lambda _: barrier.wait(), range(4), 4)
child = os.fork()
if child == 0:
    barrier = threading.Barrier(4, timeout=20)
    map_ordered(lambda _: barrier.wait(), range(4), 4)
    os._exit(0 if (once.get("done", lambda: "child"), once.get("slow", lambda: "child")) == ("parent", "child") else 3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
barrier = threading.Barrier(4, timeout=20)
map_ordered(lambda _: barrier.wait(), range(4), 4)
os._exit(status)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_value_is_made_once_for_all_threads() -> None:
    once: OnceMap[int] = OnceMap()
    made: list[int] = []
    barrier = threading.Barrier(32, timeout=20)

    def make() -> int:
        time.sleep(0.05)
        made.append(1)
        return len(made)

    def ask(_: int) -> int:
        barrier.wait()
        return once.get("key", make)

    assert map_ordered(ask, range(32), 32) == [1] * 32
    assert once.get("another", make) == 2


def test_a_failure_reaches_who_waited_and_is_forgotten() -> None:
    once: OnceMap[str] = OnceMap()
    barrier = threading.Barrier(4, timeout=20)
    attempts = []

    def fail() -> str:
        attempts.append(1)
        time.sleep(0.1)
        raise ValueError("no")

    def ask(_: int) -> str:
        barrier.wait()
        try:
            return once.get("key", fail)
        except ValueError as exc:
            return str(exc)

    assert map_ordered(ask, range(4), 4) == ["no"] * 4
    assert len(attempts) == 1
    assert once.get("key", lambda: "yes") == "yes"


def test_who_waits_takes_over_from_an_interrupted_thread() -> None:
    once: OnceMap[str] = OnceMap()
    making = threading.Event()
    asked = threading.Event()

    def interrupted() -> str:
        making.set()
        asked.wait(20)
        time.sleep(0.05)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            once.get("key", interrupted)

    thread = threading.Thread(target=first)
    thread.start()
    making.wait(20)
    asked.set()
    assert once.get("key", lambda: "second") == "second"
    thread.join()

"""A child forked while another thread holds a lock of core's finishes its work."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from running_toys import RunningHarness
from toys import Toy, ToyTarget

import briquette as bq
from briquette import discovery, hooks
from briquette._forklock import ForkLock
from briquette.arena import Arenas
from briquette.discovery import Registry
from briquette.executor import Executable
from briquette.graph import Graph
from briquette.planner import make_plan

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def child_finishes(work: Callable[[], object], seconds: float = 20.0) -> bool:
    """Fork; whether `work` ends without an error in the child, and in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads, the subject here
        pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return False


@contextmanager
def thread_inside(hold: Callable[[threading.Event, threading.Event], Any]) -> Iterator[None]:
    """Run ``hold(inside, leave)`` in a thread: it sets `inside`, then waits for `leave`, which comes after the block."""
    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(inside, leave), daemon=True)
    thread.start()
    assert inside.wait(20)
    try:
        yield
    finally:
        leave.set()
        thread.join(20)
    assert not thread.is_alive()


def holding(lock: ForkLock) -> Any:
    def hold(inside: threading.Event, leave: threading.Event) -> None:
        with lock.current:
            inside.set()
            leave.wait(60)

    return thread_inside(hold)


def test_a_child_would_hang_on_a_plain_lock() -> None:
    """What the others rest on: the kit sees a child that waits for a lock nobody can release."""
    lock = threading.Lock()
    with lock:
        assert not child_finishes(lock.acquire, seconds=0.5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_lock_held_by_another_thread_is_free_in_the_child(reentrant: bool) -> None:
    lost: list[int] = []
    lock = ForkLock(reentrant, lambda: lost.append(1))

    def work() -> None:
        with lock.current:
            assert lost == [1]

    with holding(lock):
        assert child_finishes(work)
        assert not lock.current.acquire(blocking=False)  # type: ignore[attr-defined]
    assert not lost
    with lock.current:
        pass


def test_a_lock_that_nobody_holds_loses_nothing() -> None:
    lost: list[int] = []
    lock = ForkLock(lost=lambda: lost.append(1))

    def work() -> None:
        with lock.current:
            assert not lost

    assert child_finishes(work)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_thread_may_fork_while_it_holds_the_lock(reentrant: bool) -> None:
    lock = ForkLock(reentrant)
    before = os.getpid()
    held = lock.current

    def work() -> None:
        held.__exit__(None, None, None)  # the end of the parent's block, in the child
        with lock.current:
            assert os.getpid() != before

    with held:
        assert child_finishes(work)


def test_a_fork_while_a_thread_compiles() -> None:
    parent = os.getpid()
    inside, leave = threading.Event(), threading.Event()

    class Slow(RunningHarness):
        def program(self, *args: Any) -> Any:
            if os.getpid() == parent:
                inside.set()
                assert leave.wait(60)
            return super().program(*args)

    harness, target = Slow(), ToyTarget()
    graph = Graph.build({"toy": Toy()}, None)
    run = Executable(make_plan(graph, "int32", target, [harness], "auto"), target, {harness.name: harness})
    thread = threading.Thread(target=run.compile, daemon=True)
    thread.start()
    try:
        assert inside.wait(20)
        assert child_finishes(run.compile)
    finally:
        leave.set()
        thread.join(20)
    assert not thread.is_alive()


def test_a_fork_while_a_thread_plans() -> None:
    pipe = bq.chain(Toy())
    with holding(pipe._lock):
        assert child_finishes(lambda: pipe.plan(np.zeros(3, np.int32), "numpy"))


def test_a_fork_while_a_thread_takes_an_arena() -> None:
    arenas = Arenas()
    with holding(arenas._lock):
        assert child_finishes(lambda: arenas.give(arenas.take(100, None, None), None, None))


def test_a_fork_while_a_thread_scans_or_loads() -> None:
    registry = discovery.registry()
    with holding(discovery._current_lock):
        assert child_finishes(discovery.refresh)
    with holding(registry._lock):
        assert child_finishes(lambda: [registry.reject("none", KeyError()), registry.harnesses(), Registry.scan().harnesses()])


def test_a_fork_while_a_thread_loads_an_object_of_a_pack(pack: Callable[..., Any]) -> None:
    """The child loads it again: nobody finishes what the parent's thread was at."""
    import sys

    inside, leave = threading.Event(), threading.Event()
    pack(
        "acme-slow",
        {"briquette.plugins": {"slow": "acme_slow:Lookup.plugin"}},
        """
        import sys

        class Meta(type):
            @property
            def plugin(cls):
                sys.modules["acme_gate"].wait()
                return sys.modules["acme_gate"].plugin

        class Lookup(metaclass=Meta):
            pass
        """,
    )
    parent = os.getpid()

    class Gate:
        plugin = object()

        @staticmethod
        def wait() -> None:
            if os.getpid() == parent:
                inside.set()
                assert leave.wait(60)

    sys.modules["acme_gate"] = Gate  # type: ignore[assignment]
    registry = Registry.scan()

    def work() -> None:
        assert ("acme-slow:slow", Gate.plugin) in registry.plugins()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert inside.wait(20)
        assert child_finishes(work)
    finally:
        leave.set()
        thread.join(20)
    assert ("acme-slow:slow", Gate.plugin) in registry.plugins()


def test_a_fork_while_a_thread_loads_the_plugins() -> None:
    parent = os.getpid()
    inside, leave = threading.Event(), threading.Event()

    class Slow(Registry):
        def plugins(self) -> list[tuple[str, object]]:
            if os.getpid() == parent:
                inside.set()
                assert leave.wait(60)
            return [("late", object())]

    with discovery.use(Slow([])):
        thread = threading.Thread(target=hooks.manager, daemon=True)
        thread.start()
        try:
            assert inside.wait(20)

            def work() -> None:
                assert hooks.manager().has_plugin("late")

            assert child_finishes(work)
        finally:
            leave.set()
            thread.join(20)
        assert hooks.manager().has_plugin("late")

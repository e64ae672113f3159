"""Hooks: plug-ins are called whatever the others do, loaded when first needed, and refused whole."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from briquette import discovery, hooks
from briquette.discovery import PackWarning, Registry
from briquette.errors import UsageError
from briquette.hooks import hookimpl
from briquette.record import RunRecord


def point(name: str, value: str, dist: str = "acme-watch", group: str = "plugins") -> EntryPoint:
    made = EntryPoint(name, value, f"briquette.{group}")
    vars(made)["dist"] = SimpleNamespace(name=dist, version="1.0")
    return made


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    fake = ModuleType("acme_hooks")
    monkeypatch.setitem(sys.modules, "acme_hooks", fake)
    monkeypatch.setattr(hooks, "_warned", set())
    return fake


@pytest.fixture
def empty() -> Iterator[Registry]:
    with discovery.use(Registry([])) as registry:
        yield registry


class Watcher:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl
    def plan_made(self, plan: Any) -> None:
        self.seen.append(("plan", plan))

    @hookimpl
    def compiled(self, seconds: float, source_name: str) -> None:  # a subset, in another order
        self.seen.append((source_name, seconds))

    @hookimpl
    def run_finished(self, direction: str, record: RunRecord) -> None:
        self.seen.append((direction, record))


def test_every_hook_reaches_a_plugin(module: ModuleType) -> None:
    module.it = Watcher()  # type: ignore[attr-defined]
    record = RunRecord()
    with discovery.use(Registry.from_entry_points([point("watch", "acme_hooks:it")])):
        call = discovery.hooks()
        call.plan_made(plan="p")
        call.compiled(source_name="s", target="host", seconds=0.5, cached=True)
        call.run_finished(direction="forward", record=record)
    assert module.it.seen == [("plan", "p"), ("s", 0.5), ("forward", record)]


def test_plugins_may_be_classes_and_modules_and_share_a_name(module: ModuleType) -> None:
    seen: list[str] = []

    @hookimpl
    def plan_made(plan: str) -> None:
        seen.append(f"module {plan}")

    class Other:
        @hookimpl
        def plan_made(self) -> None:
            seen.append("class")

    module.plan_made, module.Other = plan_made, Other  # type: ignore[attr-defined]
    points = [point("watch", "acme_hooks"), point("watch", "acme_hooks:Other", "acme-other")]
    with discovery.use(Registry.from_entry_points(points)):
        discovery.hooks().plan_made(plan="p")
    assert sorted(seen) == ["class", "module p"]


def test_a_plugin_that_raises_breaks_neither_the_run_nor_the_others(module: ModuleType) -> None:
    class Bad:
        @hookimpl(tryfirst=True)
        def plan_made(self) -> None:
            raise SystemExit("no disk")

    module.bad, module.good = Bad(), Watcher()  # type: ignore[attr-defined]
    points = [point("bad", "acme_hooks:bad"), point("good", "acme_hooks:good")]
    with discovery.use(Registry.from_entry_points(points)):
        with pytest.warns(PackWarning, match="hook plan_made of plugin 'acme-watch:bad' failed.*SystemExit: no disk"):
            discovery.hooks().plan_made(plan=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            discovery.hooks().plan_made(plan=2)
    assert module.good.seen == [("plan", 1), ("plan", 2)]


def test_an_interrupt_is_the_users(empty: Registry) -> None:
    class Slow:
        @hookimpl
        def plan_made(self) -> None:
            raise KeyboardInterrupt

    hooks.register(Slow(), "slow")
    try:
        with pytest.raises(KeyboardInterrupt):
            discovery.hooks().plan_made(plan=None)
    finally:
        hooks.unregister("slow")


class UnknownHook:
    @hookimpl
    def plan_maid(self) -> None: ...


class UnknownArgument:
    @hookimpl
    def plan_made(self, plan: Any, colour: str) -> None: ...


class Wrapper:
    @hookimpl(wrapper=True)
    def plan_made(self) -> Any:
        return (yield)


class Fails:
    def __init__(self) -> None:
        raise OSError("no port")


REFUSED = [
    (UnknownHook, f"there is no hook 'plan_maid' in HOOK_API {hooks.HOOK_API}; hooks: plan_made, compiled"),
    (UnknownArgument, "colour"),
    (Wrapper, "hooks only observe"),
    (Fails, "OSError: no port"),
]


@pytest.mark.parametrize(("plugin", "said"), REFUSED)
def test_an_unusable_plugin_is_left_out_and_listed(module: ModuleType, plugin: type, said: str) -> None:
    module.bad, module.good = plugin, Watcher()  # type: ignore[attr-defined]
    points = [point("bad", "acme_hooks:bad"), point("good", "acme_hooks:good")]
    with discovery.use(Registry.from_entry_points(points)) as registry:
        with pytest.warns(PackWarning, match="plugin 'acme-watch:bad' is left out") as caught:
            discovery.hooks().plan_made(plan=1)
        assert len(caught) == 1
        assert said in str(caught[0].message)
        (status,) = registry.packs()
    assert status.state == "broken"
    assert said in status.reason
    assert module.good.seen == [("plan", 1)]


def test_a_plugin_that_cannot_be_imported_is_left_out(module: ModuleType) -> None:
    module.good = Watcher()  # type: ignore[attr-defined]
    points = [point("bad", "acme_hooks_gone:bad"), point("good", "acme_hooks:good")]
    said = r"plugin 'bad' of pack acme-watch 1\.0 is left out: ModuleNotFoundError"
    with discovery.use(Registry.from_entry_points(points)), pytest.warns(PackWarning, match=said):
        discovery.hooks().plan_made(plan=1)
    assert module.good.seen == [("plan", 1)]


def test_commands_of_all_plugins(module: ModuleType) -> None:
    class Two:
        @hookimpl
        def cli_commands(self) -> list[str]:
            return ["a", "b"]

    class Odd:
        @hookimpl
        def cli_commands(self) -> Any:
            return 7

    module.two, module.odd, module.none = Two(), Odd(), Watcher()  # type: ignore[attr-defined]
    points = [point(n, f"acme_hooks:{n}") for n in ("odd", "two", "none")]
    with discovery.use(Registry.from_entry_points(points)), pytest.warns(PackWarning, match="returned a int, not a list"):
        assert discovery.hooks().cli_commands() == ["a", "b"]


def test_a_program_registers_and_removes_its_own(empty: Registry) -> None:
    watcher = Watcher()
    hooks.register(watcher, "mine")
    try:
        with pytest.raises(UsageError, match="'mine' cannot be registered: the name is taken"):
            hooks.register(Watcher(), "mine")
        discovery.hooks().plan_made(plan=1)
        with discovery.use(Registry([])):  # what the program registered outlives a refresh
            discovery.hooks().plan_made(plan=2)
    finally:
        hooks.unregister("mine")
    discovery.hooks().plan_made(plan=3)
    assert watcher.seen == [("plan", 1), ("plan", 2)]
    with pytest.raises(UsageError, match="no plugin 'mine' was registered"):
        hooks.unregister("mine")


@pytest.mark.parametrize(("plugin", "said"), REFUSED[:3])
def test_a_program_cannot_register_an_unusable_one(empty: Registry, plugin: type, said: str) -> None:
    with pytest.raises(UsageError, match="'mine' cannot be registered") as caught:
        hooks.register(plugin(), "mine")
    assert said in str(caught.value)
    assert not hooks.manager().has_plugin("mine")
    hooks.register(Watcher(), "mine")
    hooks.unregister("mine")


def test_a_plugin_whose_import_starts_a_run(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module.good = Watcher()  # type: ignore[attr-defined]

    class Eager:
        def __init__(self) -> None:
            discovery.hooks().plan_made(plan="early")

    module.Eager = Eager  # type: ignore[attr-defined]
    points = [point("a", "acme_hooks:good"), point("b", "acme_hooks:Eager")]
    with discovery.use(Registry.from_entry_points(points)):
        discovery.hooks().plan_made(plan="late")
    assert module.good.seen == [("plan", "early"), ("plan", "late")]


def test_every_hook_says_since_when() -> None:
    for name in hooks._names():
        assert "Since HOOK_API 1." in (getattr(hooks.HookSpecs, name).__doc__ or "")
        assert callable(getattr(hooks.Hooks, name))


def test_hooks_load_nothing_before_the_first_call() -> None:
    code = "import briquette.hooks; print(briquette.discovery._current)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"

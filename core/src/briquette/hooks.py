"""Hooks: what observes or extends runs, as pluggy plugins (version 1 of the hookspecs: `HOOK_API`).

A plugin is a module or object (a class is instantiated) with functions marked ``@briquette.hooks.hookimpl``, registered
through an entry point of the group ``briquette.plugins``, or by `register` within a program. Plugins are loaded when the
first hook is called. One that cannot be loaded, or raises, is left out with a `PackWarning`; a run never fails on it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pluggy

from . import discovery
from ._forklock import ForkLock
from ._load import describe
from .discovery import PackWarning
from .errors import UsageError
from .packinfo import HOOK_API

if TYPE_CHECKING:
    from .harness import Direction
    from .record import RunRecord

__all__ = ["HOOK_API", "HookSpecs", "Hooks", "hookimpl", "manager", "register", "unregister"]

PROJECT: Final = "briquette"
hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)


class HookSpecs:
    """The hooks. An implementation may take any subset of the arguments; it must not change what it is given."""

    @hookspec
    def plan_made(self, plan: Any) -> None:
        """A pipeline was planned for an input. Since HOOK_API 1.

        Parameters
        ----------
        plan : Plan
            What runs fused, what staged, and why.
        """

    @hookspec
    def compiled(self, source_name: str, target: str, seconds: float, cached: bool) -> None:
        """Code of a group is ready. Since HOOK_API 1.

        Parameters
        ----------
        source_name : str
            `KernelSource.name`.
        target : str
        seconds : float
            Wall time it took, loading from the cache included.
        cached : bool
            Whether the compiler did not have to run.
        """

    @hookspec
    def run_finished(self, direction: Direction, record: RunRecord) -> None:
        """A compression (``"forward"``) or decompression (``"inverse"``) ended without an error. Since HOOK_API 1.

        Parameters
        ----------
        direction : {"forward", "inverse"}
        record : RunRecord
            State and results of the run.
        """

    @hookspec
    def cli_commands(self) -> list[Any]:  # type: ignore[empty-body]
        """Return click commands that the command line adds to its own. Since HOOK_API 1."""


_manager: pluggy.PluginManager | None = None
_of: discovery.Registry | None = None
_loading = False
_own: dict[str, object] = {}
_warned: set[tuple[str, str]] = set()


def _interrupted() -> None:
    """In a forked child, start over where another thread was loading plugins when the parent forked."""
    global _of, _loading
    if _loading:
        _of, _loading = None, False


_lock = ForkLock(reentrant=True, lost=_interrupted)  # loading a plugin may start a run, which calls hooks


def manager() -> pluggy.PluginManager:
    """Return the plugin manager, with the plugins of the current registry; made on the first call."""
    global _manager, _of, _loading
    registry = discovery.registry()
    found = _manager
    if found is not None and _of is registry and not _loading:
        return found
    with _lock.current:
        if _manager is not None and (_of is registry or _loading):
            return _manager
        _manager, _of, _loading = pluggy.PluginManager(PROJECT), registry, True
        try:
            _manager.add_hookspecs(HookSpecs)
            for name, plugin in _own.items():
                _manager.register(plugin, name)
            for name, plugin in registry.plugins():
                _admit(_manager, registry, name, plugin)
        except BaseException:  # an interrupt: start over next time
            _of = None
            raise
        finally:
            _loading = False
        return _manager


def _admit(pm: pluggy.PluginManager, registry: discovery.Registry, name: str, plugin: object) -> None:
    try:
        made = plugin() if inspect.isclass(plugin) else plugin
        _register(pm, made, name)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # the constructor is the pack's code
        registry.reject(name, exc)
        warnings.warn(f"plugin {name!r} is left out: {describe(exc)}", PackWarning, stacklevel=3)


def _register(pm: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Register a plugin whole or not at all."""
    if pm.has_plugin(name):
        raise UsageError("the name is taken")
    try:
        pm.register(plugin, name)
        for caller in pm.get_hookcallers(plugin) or ():
            for impl in caller.get_hookimpls():
                if impl.plugin is not plugin:
                    continue
                if not caller.has_spec() and not impl.optionalhook:
                    raise UsageError(f"there is no hook {caller.name!r} in HOOK_API {HOOK_API}; hooks: {', '.join(_names())}")
                if impl.hookwrapper or impl.wrapper:
                    raise UsageError(f"hook {caller.name!r} is a wrapper; hooks only observe, so write a plain one")
    except BaseException:
        if pm.has_plugin(name):
            pm.unregister(name=name)
        raise


def _names() -> list[str]:
    return [name for name in vars(HookSpecs) if not name.startswith("_")]


def register(plugin: object, name: str) -> None:
    """Add a plugin of the running program under a name of its own.

    Raises
    ------
    UsageError
        The name is taken, or the plugin implements a hook that does not exist, or with arguments that do not.
    """
    with _lock.current:
        pm = manager()
        try:
            _register(pm, plugin, name)
        except (pluggy.PluginValidationError, ValueError) as exc:
            raise UsageError(f"plugin {name!r} cannot be registered: {exc}") from exc
        _own[name] = plugin


def unregister(name: str) -> None:
    """Remove a plugin that `register` added."""
    with _lock.current:
        if name not in _own:
            raise UsageError(f"no plugin {name!r} was registered; there are: {', '.join(_own) or 'none'}")
        del _own[name]
        pm = manager()
        if pm.has_plugin(name):
            pm.unregister(name=name)


class Hooks:
    """Calls the hooks: every implementation, the last one registered first, whatever the others do. See `HookSpecs`."""

    def plan_made(self, plan: Any) -> None:
        _notify("plan_made", plan=plan)

    def compiled(self, source_name: str, target: str, seconds: float, cached: bool) -> None:
        _notify("compiled", source_name=source_name, target=target, seconds=seconds, cached=cached)

    def run_finished(self, direction: Direction, record: RunRecord) -> None:
        _notify("run_finished", direction=direction, record=record)

    def cli_commands(self) -> list[Any]:
        commands: list[Any] = []
        for plugin, answer in _call("cli_commands", {}):
            if isinstance(answer, (list, tuple)):
                commands += answer
            elif answer is not None:
                _warn(plugin, "cli_commands", f"it returned a {type(answer).__name__}, not a list of commands")
        return commands


def _notify(hook: str, **arguments: Any) -> None:
    for _ in _call(hook, arguments):
        pass


def _call(hook: str, arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    # not through pluggy's own call, which ends at the first implementation that raises
    for impl in reversed(getattr(manager().hook, hook).get_hookimpls()):
        try:
            answer = impl.function(*(arguments[name] for name in impl.argnames))
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            _warn(impl.plugin_name, hook, describe(exc))
        else:
            yield impl.plugin_name, answer


def _warn(plugin: str, hook: str, text: str) -> None:
    if (plugin, hook) not in _warned:
        _warned.add((plugin, hook))
        warnings.warn(f"hook {hook} of plugin {plugin!r} failed, and the run goes on: {text}", PackWarning, stacklevel=4)

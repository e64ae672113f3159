"""The `host` target: generated C++, compiled for this CPU when it is first needed."""

from __future__ import annotations

import operator
import os
import re
import shlex
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from briquette import discovery
from briquette.cache import Cache, KeyPart, cache_key
from briquette.errors import CompileError, TargetUnavailable, UsageError
from briquette.sources import Headers, resolve_headers
from briquette.target import KernelSource, Target

from . import compiler
from .diagnose import explain
from .module import HostModule
from .once import OnceMap
from .pool import MAX_THREADS, map_ordered

#: compilers by what they are looked up with; a process sees one, a test several
_TOOLCHAINS: Final[OnceMap[compiler.Toolchain | str]] = OnceMap()


@dataclass(frozen=True)
class CompileCounts:
    """Where a target's modules came from: runs of the compiler, and hits of the disk cache."""

    compiled: int
    from_disk: int


class HostTarget(Target):
    """Runs plans on the CPU.

    Parameters
    ----------
    extra_flags : tuple of str
        Given to the compiler after its own flags, and part of the cache key: sanitizers, definitions.
    cache : Cache, optional
        Default: the one the environment describes.
    headers : mapping of str to str, optional
        Header name to text, used in place of what is installed.
    """

    name = "host"
    dialect = "c++"
    priority = 10

    def __init__(
        self,
        extra_flags: Sequence[str] = (),
        *,
        cache: Cache | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.extra_flags = tuple(extra_flags)
        self.cache = Cache.from_environment() if cache is None else cache
        self._headers = dict(headers or {})
        self._modules: OnceMap[HostModule] = OnceMap()
        self._origins: list[str] = []  # one item a module; appending needs no lock

    @property
    def compile_counts(self) -> CompileCounts:
        """How many modules of this object were compiled and how many were found on disk."""
        return CompileCounts(self._origins.count("compiler"), self._origins.count("disk"))

    def unavailable(self) -> str | None:
        """Return one line that says why there is no compiler, or None. Looks once for each CXX and PATH."""
        found = self._toolchain()
        return found if isinstance(found, str) else None

    def compile(self, source: KernelSource) -> HostModule:
        """Return the compiled module, from memory, the disk cache, or the compiler.

        Raises
        ------
        TargetUnavailable
            There is no compiler.
        CompileError
            The source does not compile; the message shows it near the fault and names the pack at fault.
        DeclarationError
            A header is missing, or the source lacks an entry point it declares.
        """
        toolchain = self._toolchain()
        if isinstance(toolchain, str):
            raise TargetUnavailable(f"target 'host' cannot run: {toolchain}")
        headers = resolve_headers(source, self._headers)
        key = cache_key(
            {"source": source.text, "headers": headers.texts, "options": self.extra_flags, "toolchain": toolchain.key}
        )
        # Two sources may share their text and differ in what they declare.
        memo = cache_key({"code": key, "entry points": source.entry_points})
        return self._modules.get(memo, lambda: self._told(source, headers, toolchain, key))

    def map(self, work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
        """Run `work` on every item on up to `threads` threads and return the results in order.

        The threads are shared by the process and made when first needed; with one, everything runs in the
        caller's. Calls may nest. When items fail, the exception of the first of them is raised.
        """
        return map_ordered(work, items, threads)

    def threads(self, requested: int | None = None) -> int:
        """Return the threads of a run: `requested`, else `BRIQUETTE_NUM_THREADS`, else the CPUs this process may use.

        Raises
        ------
        UsageError
            The number asked for is not an integer in 1 to 1024.
        """
        if requested is not None:
            return _checked_threads(requested, "threads")
        configured = os.environ.get("BRIQUETTE_NUM_THREADS", "").strip()
        if configured:
            return _checked_threads(configured, "BRIQUETTE_NUM_THREADS")
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(usable, MAX_THREADS)

    def identity(self) -> Mapping[str, KeyPart]:
        """Return the compiler with what it resolved of the CPU, the CPU's model, and the flags."""
        found = self._toolchain()
        if isinstance(found, str):
            return {"unavailable": found}
        return {**found.key, "model": compiler.cpu_model(), "extra flags": self.extra_flags}

    def describe(self) -> Mapping[str, str]:
        """Return the compiler, the CPU it compiles for, the flags, and where compiled code is kept."""
        found = self._toolchain()
        if isinstance(found, str):
            return {"unavailable": found}
        return {
            "compiler": found.label,
            "command": shlex.join(found.command),
            "cpu": found.cpu,
            "flags": shlex.join((*found.flags, *self.extra_flags)),
            "cache": str(self.cache.directory) if self.cache.directory else "none",
        }

    def _toolchain(self) -> compiler.Toolchain | str:
        looked_up = shlex.join((os.environ.get("CXX", ""), os.environ.get("PATH", "")))
        return _TOOLCHAINS.get(looked_up, lambda: compiler.find_toolchain(self.cache))

    def _told(self, source: KernelSource, headers: Headers, toolchain: compiler.Toolchain, key: str) -> HostModule:
        """Make the module and tell the `compiled` hook."""
        begin = time.perf_counter()
        module, cached = self._make(source, headers, toolchain, key)
        discovery.hooks().compiled(source_name=source.name, target=self.name, seconds=time.perf_counter() - begin, cached=cached)
        return module

    def _make(self, source: KernelSource, headers: Headers, toolchain: compiler.Toolchain, key: str) -> tuple[HostModule, bool]:
        """Return the module, and whether the disk cache had it."""
        dump = os.environ.get("BRIQUETTE_DUMP_DIR")
        if dump:
            self._dump(Path(dump), source, headers, toolchain, key)
        payload = self.cache.get(key)
        if payload is not None:
            try:
                module = HostModule(source.name, payload, source.entry_points)
            except OSError:
                pass  # made on a machine that looks like this one and is not: compile anew
            else:
                self._origins.append("disk")
                return module, True
        try:
            built = compiler.build(toolchain, source.text, headers.texts, self.extra_flags)
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise CompileError(f"{toolchain.label} could not be run on {source.name!r}: {exc}") from exc
        self._origins.append("compiler")
        if isinstance(built, compiler.Failure):
            raise CompileError(explain(source, headers.texts, built.output, toolchain.label))
        try:
            module = HostModule(source.name, built, source.entry_points)
        except OSError as exc:
            raise CompileError(f"{toolchain.label} compiled {source.name!r}, but the library cannot be loaded: {exc}") from exc
        self.cache.put(key, built)
        return module, False

    def _dump(self, directory: Path, source: KernelSource, headers: Headers, toolchain: compiler.Toolchain, key: str) -> None:
        tree = directory / f"host-{re.sub('[^A-Za-z0-9_.-]', '_', source.name)}-{key[:12]}"
        try:
            tree.mkdir(parents=True, exist_ok=True)
            compiler.write_tree(tree, source.text, headers.texts)
            (tree / "command.txt").write_text(shlex.join(toolchain.arguments(self.extra_flags)) + "\n", encoding="utf-8")
        except OSError as exc:
            warnings.warn(
                f"cannot keep the generated source in BRIQUETTE_DUMP_DIR={str(directory)!r}: {exc}", RuntimeWarning, stacklevel=2
            )


def _checked_threads(value: object, what: str) -> int:
    try:
        count = int(value) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        count = 0
    if isinstance(value, bool) or not 1 <= count <= MAX_THREADS:
        raise UsageError(f"{what} is {value!r}; give an integer in 1 to {MAX_THREADS}")
    return count

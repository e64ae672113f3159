"""The C++ compiler of this machine: finding it, asking what it is, running it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from briquette.cache import Cache, KeyPart, cache_key

from .module import load_library

#: Bytes depend on these: no contraction, nothing that reorders arithmetic. The two `-fno-*` let rint and the
#: conversions vectorize and change no result.
FLAGS: Final = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
)
NATIVE: Final = "-march=native"
SOURCE_FILE: Final = "kernel.cpp"
INCLUDE_DIRECTORY: Final = "include"
_LIBRARY_FILE: Final = "kernel.so"
_NAMES: Final = ("c++", "g++", "clang++")
_PROBE_SECONDS: Final = 300.0  # zig builds parts of its runtime at its first run
_COMPILE_SECONDS: Final = 900.0
_PROBE_SOURCE: Final = """\
#include <stdint.h>
#include <string.h>
#include <math.h>
extern "C" __attribute__((visibility("default"))) int32_t briquette_probe(uint64_t *slots) { return (int32_t)slots[0]; }
"""
# What -march=native stands for, as GCC and clang print it with -###.
_CPU_OPTION: Final = re.compile(
    r"""(?<=[\s"])(-m[a-z0-9][\w.+=-]*|--param"?[ =]"?[\w.=-]+|-(?:target|tune)-(?:cpu|feature|abi)"? "?[\w.+-]+)"""
)


@dataclass(frozen=True)
class Toolchain:
    """A compiler that works.

    Attributes
    ----------
    command : tuple of str
    version : str
        All that ``--version`` prints.
    flags : tuple of str
    cpu : str
        The CPU that the code is made for, in a word, for people.
    fingerprint : str
        Hash of the resolved CPU options and of every macro the compiler and the C headers predefine.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    cpu: str
    fingerprint: str

    @property
    def label(self) -> str:
        """The first line of the version."""
        return self.version.split("\n", 1)[0].strip()

    @cached_property
    def key(self) -> Mapping[str, KeyPart]:
        """What the toolchain contributes to a cache key: nothing in it is a path, so that machines can share."""
        return {
            "target": "host",
            "version": self.version,
            "arguments": self.command[1:],
            "flags": self.flags,
            "fingerprint": self.fingerprint,
            "platform": (sys.platform, platform.machine(), sysconfig.get_config_var("MULTIARCH") or "", *platform.libc_ver()),
        }

    def arguments(self, extra: Sequence[str] = ()) -> list[str]:
        """Return the command line that compiles `SOURCE_FILE` of a tree made by `write_tree`, run inside it."""
        return [*self.command, *self.flags, *extra, f"-I{INCLUDE_DIRECTORY}", SOURCE_FILE, "-o", _LIBRARY_FILE]


@dataclass(frozen=True)
class Failure:
    """A compiler run that gave no library: what it printed."""

    output: str


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """Return the CPU's model in the system's words: two that take the same instructions need not be equally fast."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "CPU part", "cpu\t", "uarch")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_tree(directory: Path, text: str, headers: Mapping[str, str]) -> None:
    """Write generated source `text` and its headers as files below `directory`.

    Copies, rather than the installed files: a zip file has none, and inside the tree every path the compiler
    sees is short, relative and ASCII.
    """
    (directory / SOURCE_FILE).write_text(text, encoding="utf-8", newline="")
    for name, header in headers.items():
        path = directory / INCLUDE_DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header, encoding="utf-8", newline="")


def build(toolchain: Toolchain, text: str, headers: Mapping[str, str], extra: Sequence[str] = ()) -> bytes | Failure:
    """Compile source `text` and return the shared library, or what the compiler had to say."""
    with _scratch() as tree:
        write_tree(tree, text, headers)
        status, output = _run(toolchain.arguments(extra), tree, _COMPILE_SECONDS)
        library = tree / _LIBRARY_FILE
        if status == 0 and library.is_file():
            return library.read_bytes()
        return Failure(output or f"the compiler ended with status {status} and said nothing")


def find_toolchain(cache: Cache) -> Toolchain | str:
    """Return the first compiler that works, or one line that says why there is none.

    `$CXX`, which may carry arguments, decides alone where it is set. Else c++, g++ and clang++ are tried, then
    the PyPI package ziglang. `cache` remembers that a compiler passed its trial.
    """
    reasons = []
    try:
        for command in _candidates():
            found = _probe(command, cache)
            if isinstance(found, Toolchain):
                return found
            reasons.append(found)
    except ValueError as exc:
        return f"CXX is {os.environ.get('CXX')!r}, which cannot be read as a command: {exc}"
    if not reasons:
        return f"no C++ compiler found (tried {', '.join(_NAMES)}); install one, or the PyPI package ziglang, or set CXX"
    return "no C++ compiler works here: " + "; ".join(reasons)


def _candidates() -> Iterator[tuple[str, ...]]:
    configured = os.environ.get("CXX", "").strip()
    if configured:
        # A path with a space in it, or a command with arguments.
        first, *rest = [configured] if shutil.which(configured) else shlex.split(configured)
        yield (os.path.abspath(first) if os.path.dirname(first) else first, *rest)  # it is run in another directory
        return
    seen = set()
    for name in _NAMES:
        path = shutil.which(name)
        if path and (real := os.path.realpath(path)) not in seen:
            seen.add(real)
            yield (name,)
    if importlib.util.find_spec("ziglang"):
        yield (sys.executable, "-m", "ziglang", "c++")


def _probe(command: tuple[str, ...], cache: Cache) -> Toolchain | str:
    """Return what `command` is, or one line that says why it cannot be used."""
    what = shlex.join(command)
    try:
        with _scratch() as tree:
            write_tree(tree, _PROBE_SOURCE, {})
            status, version = _run([*command, "--version"], tree, _PROBE_SECONDS)
            if status != 0:
                return f"{what} --version failed: {_last_line(version)}"
            # Nothing is used but C: the C++ library need not be loaded, nor (zig) built.
            is_zig = any(Path(word).name in ("zig", "ziglang") for word in command)
            link = ("-nostdlib++",) if is_zig else ("-Wl,--as-needed",) if sys.platform == "linux" else ()
            for native in ((NATIVE,), ()):
                flags = (*FLAGS, *native, *link)
                status, macros = _run([*command, *flags, "-dM", "-E", SOURCE_FILE], tree, _PROBE_SECONDS)
                if status == 0:
                    break
            else:
                return f"{what} cannot preprocess C++17: {_last_line(macros)}"
            status, verbose = _run([*command, *native, "-###", "-E", SOURCE_FILE], tree, _PROBE_SECONDS)
            options = _CPU_OPTION.findall(verbose) if status == 0 else []
            toolchain = Toolchain(command, version, flags, _cpu_name(options, native), _digest(options, macros))
        return _trial(toolchain, cache) or toolchain
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
        return f"{what} cannot be run: {exc}"


def _trial(toolchain: Toolchain, cache: Cache) -> str | None:
    """Compile and load a function of one line, where nobody has yet; return what goes wrong, in one line."""
    key = cache_key({"trial": _PROBE_SOURCE, **toolchain.key})
    if cache.get(key) is not None:
        return None
    what = shlex.join(toolchain.command)
    library = build(toolchain, _PROBE_SOURCE, {})
    if isinstance(library, Failure):
        return f"{what} cannot build a shared library: {_last_line(library.output)}"
    try:
        load_library(library)["briquette_probe"]
    except (OSError, AttributeError) as exc:
        return f"{what} builds libraries that cannot be loaded here: {exc}"
    cache.put(key, library)
    return None


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="briquette-") as directory:
        yield Path(directory)


def _run(command: Sequence[str], directory: Path, seconds: float) -> tuple[int, str]:
    """Run `command` in `directory`; return its status and everything it printed, in English."""
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},  # of the child only
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace").replace("\r\n", "\n").strip()


def _digest(options: Sequence[str], macros: str) -> str:
    digest = hashlib.sha256("\n".join(options).encode())
    digest.update(b"\0" + "\n".join(sorted(macros.splitlines())).encode())
    return digest.hexdigest()


def _cpu_name(options: Sequence[str], native: Sequence[str]) -> str:
    for option in reversed(options):  # the last one counts
        match = re.fullmatch(r'(?:-march=|-target-cpu"? "?)([\w.+-]+)', option)
        if match and match[1] != "native":
            return match[1]
    return "native" if native else "generic"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line]
    return (errors or lines or ["it said nothing"])[-1]

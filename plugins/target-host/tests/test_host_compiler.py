"""Finding a compiler (cases N2, P1)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from briquette.cache import Cache
from briquette_target_host import compiler as compiler_file
from briquette_target_host.compiler import NATIVE, Toolchain, find_toolchain

NO_CACHE = Cache(None)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> str:
    """The absolute path of a compiler that works; `CXX` is unset."""
    monkeypatch.delenv("CXX", raising=False)
    found = find_toolchain(NO_CACHE)
    if not isinstance(found, Toolchain):
        pytest.skip(found)
    path = shutil.which(found.command[0])
    assert path
    return path


def wrapper(path: Path, body: str) -> Path:
    """An executable shell script at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def found_toolchain() -> Toolchain:
    found = find_toolchain(NO_CACHE)
    assert isinstance(found, Toolchain), found
    return found


def test_cxx_decides_and_may_carry_arguments(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{shlex.quote(real)} -DFROM_CXX=1")
    assert found_toolchain().command == (real, "-DFROM_CXX=1")


def test_cxx_may_have_a_space_in_its_path(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = wrapper(tmp_path / "my töols" / "my c++", f'exec {shlex.quote(real)} "$@"')
    monkeypatch.setenv("CXX", str(script))
    assert found_toolchain().command == (str(script),)


def test_cxx_may_be_a_relative_path(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper(tmp_path / "bin" / "cc1", f'exec {shlex.quote(real)} "$@"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "bin/cc1")
    assert found_toolchain().command == (str(tmp_path / "bin" / "cc1"),)


@pytest.mark.parametrize("cxx", ["no-such-compiler", "/bin/false", "'unbalanced", "/"])
def test_a_cxx_that_does_not_work_is_named_and_nothing_else_is_tried(monkeypatch: pytest.MonkeyPatch, cxx: str) -> None:
    monkeypatch.setenv("CXX", cxx)
    reason = find_toolchain(NO_CACHE)
    assert isinstance(reason, str)
    assert cxx.strip("'") in reason
    assert "\n" not in reason


def test_no_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(compiler_file.importlib.util, "find_spec", lambda name: None)
    assert find_toolchain(NO_CACHE) == (
        "no C++ compiler found (tried c++, g++, clang++); install one, or the PyPI package ziglang, or set CXX"
    )


def test_a_broken_compiler_is_passed_over(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper(tmp_path / "c++", "echo 'c++: no headers' >&2; exit 1")
    wrapper(tmp_path / "g++", f'exec {shlex.quote(real)} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert found_toolchain().command == ("g++",)


def test_all_broken_says_why_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiler_file.importlib.util, "find_spec", lambda name: None)
    wrapper(tmp_path / "c++", "echo 'c++: broken' >&2; exit 1")
    wrapper(tmp_path / "clang++", "[ $1 = --version ] && echo clang version 1 && exit 0; echo 'error: no stdint.h'; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_toolchain(NO_CACHE) == (
        "no C++ compiler works here: c++ --version failed: c++: broken; clang++ cannot preprocess C++17: error: no stdint.h"
    )


def test_a_compiler_without_a_linker_is_noticed(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = wrapper(
        tmp_path / "nolink",
        f'case " $* " in *" -o "*) echo "error: cannot find ld" >&2; exit 1;; esac\nexec {shlex.quote(real)} "$@"',
    )
    monkeypatch.setenv("CXX", str(script))
    assert find_toolchain(NO_CACHE) == (
        f"no C++ compiler works here: {script} cannot build a shared library: error: cannot find ld"
    )


def test_a_compiler_for_another_machine_is_noticed(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = wrapper(
        tmp_path / "cross", f'echo junk > kernel.so; case " $* " in *" -o "*) exit 0;; esac\nexec {shlex.quote(real)} "$@"'
    )
    monkeypatch.setenv("CXX", str(script))
    reason = find_toolchain(NO_CACHE)
    assert isinstance(reason, str)
    assert "builds libraries that cannot be loaded here" in reason


def test_the_trial_is_remembered(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    script = wrapper(tmp_path / "logged", f'echo "$*" >> {shlex.quote(str(log))}\nexec {shlex.quote(real)} "$@"')
    monkeypatch.setenv("CXX", str(script))
    for expected in (1, 1):
        assert isinstance(find_toolchain(Cache(tmp_path / "cache")), Toolchain)
        assert sum(" -o " in line for line in log.read_text().splitlines()) == expected


def test_a_compiler_that_refuses_native_is_used_without(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert NATIVE in found_toolchain().flags
    script = wrapper(
        tmp_path / "old",
        f'case " $* " in *" {NATIVE} "*) echo "error: bad -march" >&2; exit 1;; esac\nexec {shlex.quote(real)} "$@"',
    )
    monkeypatch.setenv("CXX", str(script))
    found = found_toolchain()
    assert NATIVE not in found.flags
    assert "-ffp-contract=off" in found.flags


def test_what_native_means_is_part_of_the_key(real: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = found_toolchain()
    assert plain.key["fingerprint"] == found_toolchain().key["fingerprint"]
    # What another CPU does under the same flags: it predefines other macros.
    monkeypatch.setenv("CXX", f"{shlex.quote(real)} -D__SOME_FEATURE__=1")
    other = found_toolchain()
    assert other.flags == plain.flags
    assert other.fingerprint != plain.fingerprint


def test_native_is_resolved_for_people_too(real: str) -> None:
    assert found_toolchain().cpu not in ("", "native")


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (' cc1plus -E -quiet a.cpp "-march=cooperlake" -mmmx --param "l2-cache-size=307200" "-mtune=generic"', "cooperlake"),
        (' "clang" "-cc1" "-target-cpu" "x86-64" "-target-cpu" "znver4" "-target-feature" "+avx2"', "znver4"),
        (" cc1plus -E -quiet a.cpp -mlittle-endian -mabi=lp64", "native"),
    ],
)
def test_the_cpu_is_read_from_what_compilers_print(printed: str, expected: str) -> None:
    options = compiler_file._CPU_OPTION.findall(printed)
    assert compiler_file._cpu_name(options, (NATIVE,)) == expected
    assert compiler_file._digest(options, "") != compiler_file._digest(options[:-1], "")


def test_ziglang_is_the_last_resort(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import subprocess, sys\n"
        "assert sys.argv[1] == 'c++'\n"
        f"sys.exit(subprocess.call([{real!r}, *(a for a in sys.argv[2:] if a != '-nostdlib++')]))\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setattr(compiler_file, "_NAMES", ("no-such-compiler",))
    found = found_toolchain()
    assert found.command == (sys.executable, "-m", "ziglang", "c++")
    assert found.flags[-1] == "-nostdlib++"  # its C++ library takes most of a minute to build
    assert "ziglang" in str(found.key["arguments"])
    assert sys.executable not in str(found.key)


SCRIPT = """
import locale, os, sys, tempfile
import numpy as np
before = locale.setlocale(locale.LC_ALL)
from briquette.target import KernelSource
from briquette_target_host.target import HostTarget
target = HostTarget(headers={"p/cuda/x.cuh": "// gr\\u00f6\\u00dfe\\nstatic const int x = 42;"})
text = '''#include <p/cuda/x.cuh>
#include <stdint.h>
extern "C" __attribute__((visibility("default"))) int32_t f(uint64_t *) { return x; }
'''
status = target.compile(KernelSource("f", text, ("f",))).call("f", np.zeros(1, np.uint64))
assert locale.setlocale(locale.LC_ALL) == before
assert os.environ.get("LC_ALL") == sys.argv[1]
assert os.fsencode(tempfile.gettempdir()) == os.environb[b"TMPDIR"]
try:
    target.compile(KernelSource("g", text + "oops", ("f",)))
except Exception as exc:
    assert "line 4" in str(exc), str(exc)
print(status, target.compile_counts.compiled, target.compile_counts.from_disk, target.cache.info().entries)
"""


@pytest.mark.parametrize("utf8", ["0", "1"])
def test_odd_locales_and_directories(real: str, tmp_path: Path, utf8: str) -> None:
    home, temporary = tmp_path / "hömé of müller", tmp_path / "tmp ünd mehr"
    home.mkdir()
    temporary.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("BRIQUETTE_", "XDG_", "LANG", "LC_"))}
    env |= {"HOME": str(home), "TMPDIR": str(temporary), "LC_ALL": "C", "PYTHONUTF8": utf8, "PYTHONCOERCECLOCALE": "0"}
    for expected in (["42", "2", "0", "2"], ["42", "1", "1", "2"]):  # the one that does not compile is tried each time
        done = subprocess.run([sys.executable, "-c", SCRIPT, "C"], env=env, capture_output=True, text=True)
        assert done.stdout.split() == expected, done.stderr
    assert list(temporary.iterdir()) == []
    if sys.platform == "linux":
        assert (home / ".cache" / "briquette").is_dir()


def test_importing_the_target_needs_no_compiler_and_runs_nothing(tmp_path: Path) -> None:
    script = "import subprocess; subprocess.Popen = None\nimport briquette_target_host.target as t; t.HostTarget(); print('fine')"
    (tmp_path / "cuda.py").write_text("raise SystemExit('imported a local file')")
    env = {**os.environ, "PATH": "", "CUDA_VISIBLE_DEVICES": "", "BRIQUETTE_CACHE_DIR": str(tmp_path / "c")}
    done = subprocess.run([sys.executable, "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("fine\n", "")
    assert not (tmp_path / "c").exists()

"""Compiling: once, from the cache where it can, with an error that helps (cases O1, O2, M3)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from briquette import hooks, sources
from briquette.cache import Cache
from briquette.errors import CompileError, DeclarationError, TargetUnavailable
from briquette.target import KernelSource
from briquette_target_host import target as target_file
from briquette_target_host.pool import map_ordered
from briquette_target_host.target import CompileCounts, HostTarget

EXPORT = 'extern "C" __attribute__((visibility("default")))'
TEXT = f"""#include <stdint.h>
#include <pack_a/cuda/value.cuh>
#ifndef EXTRA
#define EXTRA 0
#endif
{EXPORT} int32_t value(uint64_t *slots) {{ return pack_a::value() + EXTRA; }}
"""
HEADERS = {"pack_a/cuda/value.cuh": "#pragma once\nnamespace pack_a { inline int value() { return 42; } }\n"}
SOURCE = KernelSource("value", TEXT, ("value",))
SLOTS = np.zeros(1, np.uint64)


@pytest.fixture(autouse=True)
def _needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRIQUETTE_DUMP_DIR", raising=False)
    reason = HostTarget(cache=Cache(None)).unavailable()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def value(target: HostTarget, source: KernelSource = SOURCE) -> int:
    return target.compile(source).call(source.entry_points[0], SLOTS)


def test_it_compiles_and_remembers(cache: Cache) -> None:
    target = HostTarget(cache=cache, headers=HEADERS)
    assert (target.name, target.dialect) == ("host", "c++")
    module = target.compile(SOURCE)
    assert module.call("value", SLOTS) == 42
    assert target.compile(SOURCE) is module
    assert target.compile_counts == CompileCounts(compiled=1, from_disk=0)


def test_another_object_finds_it_on_disk(cache: Cache) -> None:
    value(HostTarget(cache=cache, headers=HEADERS))
    again = HostTarget(cache=cache, headers=HEADERS)
    assert value(again) == 42
    assert again.compile_counts == CompileCounts(compiled=0, from_disk=1)


def test_a_changed_header_option_or_source_is_compiled(cache: Cache) -> None:
    value(HostTarget(cache=cache, headers=HEADERS))
    changed = {name: text.replace("42", "43") for name, text in HEADERS.items()}
    for target, source, expected in (
        (HostTarget(cache=cache, headers=changed), SOURCE, 43),
        (HostTarget(("-DEXTRA=8",), cache=cache, headers=HEADERS), SOURCE, 50),
        (HostTarget(cache=cache, headers=HEADERS), KernelSource("value", TEXT.replace("+ EXTRA", "+ 9"), ("value",)), 51),
    ):
        assert value(target, source) == expected
        assert target.compile_counts == CompileCounts(compiled=1, from_disk=0)


@pytest.mark.parametrize("part", ["version", "fingerprint", "flags"])
def test_a_changed_compiler_or_cpu_compiles_anew(cache: Cache, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    value(HostTarget(cache=cache, headers=HEADERS))
    target = HostTarget(cache=cache, headers=HEADERS)
    toolchain = target._toolchain()
    assert not isinstance(toolchain, str)
    other = {"version": "another 1.0", "fingerprint": "0" * 64, "flags": (*toolchain.flags, "-g0")}[part]
    fields = {name: getattr(toolchain, name) for name in ("command", "version", "flags", "cpu", "fingerprint")}
    changed = target_file.compiler.Toolchain(**{**fields, part: other})
    monkeypatch.setattr(HostTarget, "_toolchain", lambda self: changed)
    assert value(target) == 42
    assert target.compile_counts == CompileCounts(compiled=1, from_disk=0)


@pytest.mark.parametrize("damage", ["truncated to 0", "truncated to 10", "halved", "flipped"])
def test_a_damaged_entry_is_compiled_anew(cache: Cache, damage: str) -> None:
    value(HostTarget(cache=cache, headers=HEADERS))
    for path in cache.directory.rglob("*.brqc"):  # type: ignore[union-attr]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        lengths = {"truncated to 0": 0, "truncated to 10": 10, "halved": len(data) // 2, "flipped": len(data)}
        path.write_bytes(bytes(data)[: lengths[damage]])
    for expected in (CompileCounts(1, 0), CompileCounts(0, 1)):
        target = HostTarget(cache=cache, headers=HEADERS)
        assert value(target) == 42
        assert target.compile_counts == expected


def test_a_sound_entry_that_cannot_be_loaded_is_compiled_anew(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    target = HostTarget(cache=cache, headers=HEADERS)
    monkeypatch.setattr(cache, "get", lambda key: b"made for another kind of machine")
    assert value(target) == 42
    assert target.compile_counts == CompileCounts(1, 0)


def test_it_works_without_a_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for unusable in (Cache(None), Cache(tmp_path / "file"), Cache("/proc/nowhere"), Cache(tmp_path / "small", max_bytes=0)):
        target = HostTarget(cache=unusable, headers=HEADERS)
        assert value(target) == 42
        assert target.compile_counts == CompileCounts(1, 0)


def test_thirty_two_threads_compile_once(cache: Cache) -> None:
    target = HostTarget(cache=cache, headers=HEADERS)
    assert map_ordered(lambda _: value(target), range(32), 32) == [42] * 32
    assert target.compile_counts == CompileCounts(1, 0)


def test_two_sources_of_one_text_keep_their_entry_points(cache: Cache) -> None:
    text = (
        f"#include <stdint.h>\n{EXPORT} int32_t a(uint64_t *) {{ return 1; }}\n{EXPORT} int32_t b(uint64_t *) {{ return 2; }}\n"
    )
    target = HostTarget(cache=cache)
    assert [value(target, KernelSource("one", text, (entry,))) for entry in ("a", "b")] == [1, 2]
    assert target.compile_counts == CompileCounts(1, 1)


def test_arithmetic_is_not_contracted(cache: Cache) -> None:
    text = f"""#include <stdint.h>
{EXPORT} int32_t f(uint64_t *slots) {{
    const float *x = (const float *)slots[0]; float *y = (float *)slots[1];
    for (int i = 0; i < 64; ++i) y[i] = x[i] * x[i] - 1.0f;
    return 0;
}}
"""
    x = (1 + np.arange(1, 65) * 2.0**-13).astype(np.float32)
    y = np.empty_like(x)
    HostTarget(cache=cache).compile(KernelSource("fma", text, ("f",))).call(
        "f", np.array([x.ctypes.data, y.ctypes.data], np.uint64)
    )
    np.testing.assert_array_equal(y, x * x - np.float32(1))
    assert (y != (x.astype(np.float64) ** 2 - 1).astype(np.float32)).any()  # what contraction would have given


SCRIPT = """
import sys
import numpy as np
from briquette.target import KernelSource
from briquette_target_host.target import HostTarget
target = HostTarget(headers={"pack_a/cuda/value.cuh": sys.argv[2]})
module = target.compile(KernelSource("value", sys.argv[1], ("value",)))
print(module.call("value", np.zeros(1, np.uint64)), target.compile_counts.compiled, target.compile_counts.from_disk)
"""
COMMAND = [sys.executable, "-c", SCRIPT, TEXT, HEADERS["pack_a/cuda/value.cuh"]]


def test_sixteen_processes_on_an_empty_cache_then_none_compiles(tmp_path: Path) -> None:
    env = {**os.environ, "BRIQUETTE_CACHE_DIR": str(tmp_path / "cache")}
    crowd = [subprocess.Popen(COMMAND, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(16)]
    for each in crowd:
        out, err = each.communicate()
        assert (each.returncode, err) == (0, "")
        assert out.split()[0] == "42"
    second = subprocess.run(COMMAND, env=env, capture_output=True, text=True, check=True)
    assert second.stdout.split() == ["42", "0", "1"]
    assert list(tmp_path.rglob("*.tmp")) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this platform")
def test_a_forked_child_uses_what_is_compiled_and_compiles(tmp_path: Path) -> None:
    script = (
        SCRIPT
        + """
import os
child = os.fork()
if child == 0:
    ok = module.call("value", np.zeros(1, np.uint64)) == 42
    other = target.compile(KernelSource("value", sys.argv[1] + "// another", ("value",)))
    ok = ok and target.map(lambda _: other.call("value", np.zeros(1, np.uint64)), range(8), 4) == [42] * 8
    os._exit(0 if ok else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    env = {**os.environ, "BRIQUETTE_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script, *COMMAND[3:]], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_in_a_header_shows_it_and_names_its_owner(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_distributions", lambda: {"pack_a": ["briquette-pack-a"]})
    broken = {"pack_a/cuda/value.cuh": "#pragma once\nnamespace pack_a {\ninline int value() { return oops; }\n}\n"}
    target = HostTarget(cache=cache, headers=broken)
    with pytest.raises(CompileError) as raised:
        target.compile(SOURCE)
    message = str(raised.value)
    assert "cannot compile 'value': <pack_a/cuda/value.cuh>, line 3: " in message.splitlines()[0]
    assert "oops" in message.splitlines()[0]
    assert "<pack_a/cuda/value.cuh> belongs to briquette-pack-a" in message
    assert ">     3 | inline int value() { return oops; }" in message
    assert "      1 | #pragma once" in message
    with pytest.raises(CompileError):  # a failure is not remembered as success
        target.compile(SOURCE)


def test_an_error_in_generated_code_names_the_pack_it_speaks_of(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_distributions", lambda: {"pack_a": ["briquette-pack-a"]})
    source = KernelSource("value", TEXT + 'static_assert(sizeof(int) == 3, "the parameters of pack_a::Op: size");\n', ("value",))
    with pytest.raises(CompileError) as raised:
        HostTarget(cache=cache, headers=HEADERS).compile(source)
    message = str(raised.value)
    assert "the generated source, line 7" in message
    assert "the message speaks of pack_a, which belongs to briquette-pack-a" in message
    assert ">     7 | static_assert" in message


def test_an_error_inside_a_harness_names_the_policy_it_was_given(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_distributions", lambda: {"pack_a": ["briquette-pack-a"], "harness": ["briquette-harness"]})
    headers = {
        "pack_a/cuda/op.cuh": "namespace pack_a { struct Op { int x; }; }\n",
        "harness/cuda/run.cuh": "namespace harness {\ntemplate <class Op> int run() { return Op{}.y; }\n}\n",
    }
    text = f"""#include <stdint.h>
#include <harness/cuda/run.cuh>
#include <pack_a/cuda/op.cuh>
{EXPORT} int32_t f(uint64_t *) {{ return harness::run<pack_a::Op>(); }}
"""
    with pytest.raises(CompileError) as raised:
        HostTarget(cache=cache, headers=headers).compile(KernelSource("run", text, ("f",)))
    message = str(raised.value)
    assert "<harness/cuda/run.cuh> belongs to briquette-harness" in message
    assert "the message speaks of pack_a, which belongs to briquette-pack-a" in message
    assert "speaks of harness" not in message


def test_an_option_the_compiler_refuses_is_a_compile_error(cache: Cache) -> None:
    with pytest.raises(CompileError, match="-fno-such-option"):
        HostTarget(("-fno-such-option=3",), cache=cache, headers=HEADERS).compile(SOURCE)


def test_a_missing_header_names_the_pack(cache: Cache) -> None:
    with pytest.raises(DeclarationError, match="no package 'pack_a' is installed"):
        HostTarget(cache=cache).compile(SOURCE)


def test_a_missing_entry_point_is_a_declaration_error(cache: Cache) -> None:
    with pytest.raises(DeclarationError, match="declares the entry point 'absent'"):
        HostTarget(cache=cache, headers=HEADERS).compile(KernelSource("value", TEXT, ("absent",)))


def test_without_a_compiler_the_error_says_so(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TargetUnavailable, match=r"target 'host' cannot run: .*no-such-compiler"):
        HostTarget(cache=cache, headers=HEADERS).compile(SOURCE)


def test_generated_sources_are_kept_where_asked(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_DUMP_DIR", str(tmp_path / "dump"))
    target = HostTarget(cache=cache, headers=HEADERS)
    target.compile(KernelSource("a/b c", TEXT, ("value",)))
    (tree,) = (tmp_path / "dump").iterdir()
    assert tree.name.startswith("host-a_b_c-")
    assert (tree / "kernel.cpp").read_text() == TEXT
    assert (tree / "include/pack_a/cuda/value.cuh").read_text() == HEADERS["pack_a/cuda/value.cuh"]
    assert subprocess.run((tree / "command.txt").read_text(), shell=True, cwd=tree).returncode == 0


def test_a_dump_directory_that_cannot_be_written_warns(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BRIQUETTE_DUMP_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="cannot keep the generated source in BRIQUETTE_DUMP_DIR"):
        assert value(HostTarget(cache=cache, headers=HEADERS)) == 42


def test_address_sanitizer_builds_find_an_overrun(tmp_path: Path) -> None:
    found = HostTarget(cache=Cache(None))._toolchain()
    assert not isinstance(found, str)
    runtime = subprocess.run([*found.command, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip("this compiler has no libasan.so")
    script = f"""
import numpy as np
from briquette.cache import Cache
from briquette.target import KernelSource
from briquette_target_host.target import HostTarget
text = '''#include <stdint.h>
#include <stdlib.h>
{EXPORT} int32_t f(uint64_t *slots) {{
    int *volatile p = (int *)malloc(40);
    int got = p[slots[0]];
    free(p);
    return got;
}}'''
target = HostTarget(("-fsanitize=address", "-O1"), cache=Cache(None))
module = target.compile(KernelSource("overrun", text, ("f",)))
module.call("f", np.array([9], np.uint64))
print("inside is fine", flush=True)
module.call("f", np.array([10], np.uint64))
print("not reached")
"""
    env = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "inside is fine\n", done.stderr
    assert "heap-buffer-overflow" in done.stderr


def test_describe(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = HostTarget(("-DEXTRA=1",), cache=cache).describe()
    assert facts["compiler"]
    assert facts["cpu"]
    assert "-ffp-contract=off" in facts["flags"]
    assert facts["flags"].endswith("-DEXTRA=1")
    assert "fast-math" not in facts["flags"]
    assert facts["cache"] == str(cache.directory)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert list(HostTarget(cache=cache).describe()) == ["unavailable"]


def test_the_compiled_hook_hears_of_compiler_and_disk(tmp_path: Path) -> None:
    heard: list[tuple[str, str, bool]] = []

    class Listener:
        @hooks.hookimpl
        def compiled(self, source_name: str, target: str, seconds: float, cached: bool) -> None:
            assert seconds > 0
            heard.append((source_name, target, cached))

    hooks.register(Listener(), "listener-of-this-test")
    try:
        text = 'extern "C" __attribute__((visibility("default"))) int one(void *) { return 1; }\n'
        source = KernelSource("heard", text, ("one",))
        for _ in range(2):
            HostTarget(cache=Cache(tmp_path)).compile(source)
    finally:
        hooks.unregister("listener-of-this-test")
    assert heard == [("heard", "host", False), ("heard", "host", True)]

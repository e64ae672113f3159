"""The cache of compiled code: never wrong, never in the way (cases O1 and O2)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from briquette import cache as cache_module
from briquette.cache import Cache, cache_key, default_directory
from briquette.errors import UsageError

KEY = cache_key({"source": "int f();"})
OTHER = cache_key({"source": "int g();"})
PAYLOAD = bytes(range(256)) * 8


def entry_of(cache: Cache) -> Path:
    """The one file of a cache with one entry."""
    assert cache.directory is not None
    (path,) = [each for each in cache.directory.rglob("*") if each.is_file()]
    return path


def test_what_is_put_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    assert cache.get(KEY) is None
    assert cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD
    assert Cache(tmp_path / "c").get(KEY) == PAYLOAD
    assert cache.get(OTHER) is None


def test_an_empty_payload_is_a_payload(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.put(KEY, b"")
    assert cache.get(KEY) == b""


def test_a_second_put_replaces(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, b"old")
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD
    assert cache.info().entries == 1


@pytest.mark.parametrize("length", [0, 10, 47, 48, 48 + len(PAYLOAD) // 2, 47 + len(PAYLOAD)])
def test_a_truncated_entry_counts_as_absent_and_goes(tmp_path: Path, length: int) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, PAYLOAD)
    path = entry_of(cache)
    path.write_bytes(path.read_bytes()[:length])
    assert cache.get(KEY) is None
    assert not path.exists()
    assert cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD


def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, PAYLOAD[:40])
    path = entry_of(cache)
    good = path.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << (at % 8)
        path.write_bytes(bad)
        assert cache.get(KEY) is None, f"byte {at}"
    path.write_bytes(good + b"\0")
    assert cache.get(KEY) is None
    path.write_bytes(good)
    assert cache.get(KEY) == PAYLOAD[:40]


def test_an_entry_under_the_name_of_another_is_noticed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, PAYLOAD)
    path = entry_of(cache)
    impostor = tmp_path / "v1" / OTHER[:2] / (OTHER + ".brqc")
    impostor.parent.mkdir(exist_ok=True)
    path.rename(impostor)
    assert cache.get(OTHER) is None


def test_a_directory_in_the_place_of_an_entry_is_no_error(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (tmp_path / "v1" / KEY[:2] / (KEY + ".brqc")).mkdir(parents=True)
    assert cache.get(KEY) is None
    assert not cache.put(KEY, PAYLOAD)


@pytest.mark.parametrize("place", ["file", "below a file", "/proc/nowhere"])
def test_an_unusable_directory_is_no_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = Cache({"file": tmp_path / "file", "below a file": tmp_path / "file" / "c"}.get(place, Path(place)))
    assert cache.get(KEY) is None
    assert cache.put(KEY, PAYLOAD) is False
    assert cache.get(KEY) is None
    assert cache.clean() == 0
    assert "cannot write to" in (cache.info().problem or "")


def test_no_directory_keeps_nothing() -> None:
    cache = Cache(None)
    assert cache.put(KEY, PAYLOAD) is False
    assert cache.get(KEY) is None
    assert cache.info().problem
    assert cache.info().entries == 0


def test_a_full_disk_is_no_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache_module.os, "replace", full)
        assert cache.put(KEY, PAYLOAD) is False
    assert cache.info().problem == f"cannot write to {tmp_path}: No space left on device"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
    assert cache.put(KEY, PAYLOAD)
    assert cache.info().problem is None


def test_a_directory_that_vanishes_comes_back(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "b")
    cache.put(KEY, PAYLOAD)
    entry_of(cache).unlink()
    for folder in (cache.directory / "v1" / KEY[:2], cache.directory / "v1", cache.directory):  # type: ignore[operator]
        folder.rmdir()  # type: ignore[union-attr]
    assert cache.get(KEY) is None
    assert cache.put(KEY, PAYLOAD)


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    keys = [cache_key({"n": n}) for n in range(5)]
    cache = Cache(tmp_path, max_bytes=4 * (48 + 1000))
    for age, key in enumerate(keys[:4]):
        cache.put(key, bytes(1000))
        past = time.time() - 10_000 + age
        os.utime(tmp_path / "v1" / key[:2] / (key + ".brqc"), (past, past))
    assert cache.get(keys[0]) is not None  # used just now: older in age, not in use
    cache.put(keys[4], bytes(1000))
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True, True]
    assert cache.info().bytes <= cache.max_bytes


def test_an_entry_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=100)
    assert cache.put(KEY, bytes(10))
    assert cache.put(OTHER, bytes(100)) is False
    assert cache.get(KEY) == bytes(10)


def test_temporary_files_of_dead_processes_go(tmp_path: Path) -> None:
    folder = tmp_path / "v1" / "ab"
    folder.mkdir(parents=True)
    old, young = folder / ".dead.tmp", folder / ".alive.tmp"
    for each in (old, young):
        each.write_bytes(b"half")
    os.utime(old, (time.time() - 10_000,) * 2)
    Cache(tmp_path).put(KEY, PAYLOAD)
    assert not old.exists()
    assert young.exists()


def test_the_shared_layer_is_read_and_never_written(tmp_path: Path) -> None:
    shared = Cache(tmp_path / "shared")
    shared.put(KEY, PAYLOAD)
    cache = Cache(tmp_path / "own", shared=tmp_path / "shared")
    assert cache.get(KEY) == PAYLOAD
    cache.put(OTHER, b"other")
    assert shared.get(OTHER) is None
    damaged = entry_of(shared)
    damaged.write_bytes(b"damaged")
    assert cache.get(KEY) is None
    assert damaged.read_bytes() == b"damaged"
    cache.clean()
    assert damaged.exists()


def test_info_and_clean(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert (cache.info().entries, cache.info().bytes) == (0, 0)
    cache.put(KEY, PAYLOAD)
    cache.put(OTHER, PAYLOAD)
    size = 2 * (48 + len(PAYLOAD))
    assert (cache.info().entries, cache.info().bytes) == (2, size)
    (tmp_path / "v1" / KEY[:2] / "notes.txt").write_text("not ours")
    assert cache.clean() == size
    assert cache.info().entries == 0
    assert (tmp_path / "v1" / KEY[:2] / "notes.txt").exists()


def test_what_cannot_be_removed_is_an_error_when_the_rest_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, PAYLOAD)
    cache.put(OTHER, PAYLOAD)
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith(KEY):
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(PermissionError, match=KEY):
        cache.clean()
    assert cache.get(KEY) == PAYLOAD
    assert cache.get(OTHER) is None


def test_the_environment_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("BRIQUETTE_CACHE_SHARED_DIR", str(tmp_path / "shared"))
    monkeypatch.setenv("BRIQUETTE_CACHE_MAX_BYTES", "1234")
    info = Cache.from_environment().info()
    assert (info.directory, info.shared, info.max_bytes) == (tmp_path / "own", tmp_path / "shared", 1234)


@pytest.mark.parametrize("value", ["lots", "-1", "1e9", "5 MB"])
def test_a_bound_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("BRIQUETTE_CACHE_MAX_BYTES", value)
    with pytest.raises(UsageError, match=f"BRIQUETTE_CACHE_MAX_BYTES is '{value}'"):
        Cache.from_environment()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG directories are a Linux and BSD convention")
def test_the_default_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_directory() == tmp_path / ".cache" / "briquette"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the specification says to ignore it
    assert default_directory() == tmp_path / ".cache" / "briquette"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_directory() == tmp_path / "xdg" / "briquette"


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("BRIQUETTE_CACHE_DIR", raising=False)
    monkeypatch.setattr(cache_module.Path, "home", staticmethod(homeless))
    assert Cache.from_environment().put(KEY, PAYLOAD) is False


def test_keys_tell_different_parts_apart() -> None:
    parts: list[dict[str, object]] = [
        {},
        {"a": ""},
        {"a": b""},
        {"a": "bc"},
        {"ab": "c"},
        {"a": ["b", "c"]},
        {"a": ["bc"]},
        {"a": ["c", "b"]},
        {"a": [["b"], "c"]},
        {"a": "1"},
        {"a": 1},
        {"a": b"1"},
        {"a": 11},
        {"a": [1, 1]},
        {"a": {"b": "c"}},
        {"a": {}, "b": {}},
        {"a": {"b": {}}},
    ]
    assert len({cache_key(each) for each in parts}) == len(parts)  # type: ignore[arg-type]


def test_keys_do_not_depend_on_the_order_of_a_mapping() -> None:
    assert cache_key({"a": 1, "b": {"c": 2, "d": 3}}) == cache_key({"b": {"d": 3, "c": 2}, "a": 1})


def test_keys_contain_the_version_of_briquette(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "core_version", lambda: "another")
    assert cache_key({"source": "int f();"}) != KEY


def test_keys_are_the_same_in_every_process() -> None:
    script = "from briquette.cache import cache_key; print(cache_key({'source': 'int f();'}))"
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert done.stdout.strip() == KEY, done.stderr


def test_a_float_in_a_key_is_refused() -> None:
    with pytest.raises(TypeError, match=r"not float: 0\.5"):
        cache_key({"a": 0.5})  # type: ignore[dict-item]


WORKER = """
import sys
from briquette.cache import Cache, cache_key
cache = Cache(sys.argv[1], max_bytes=200_000)
for round in range(12):
    for n in range(6):
        key, payload = cache_key({"n": n}), bytes([n]) * (10_000 + n)
        found = cache.get(key)
        assert found is None or found == payload, "wrong bytes"
        if found is None or round % 3 == 0:
            cache.put(key, payload)
        if round == 7 and n == 3:
            cache.clean()
"""


def test_sixteen_processes_on_an_empty_cache(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "c")], stderr=subprocess.PIPE) for _ in range(16)]
    assert [(each.communicate()[1].decode(), each.returncode) for each in workers] == [("", 0)] * 16
    assert list((tmp_path / "c").rglob("*.tmp")) == []
    cache = Cache(tmp_path / "c")
    assert cache.get(cache_key({"n": 5})) == bytes([5]) * 10_005

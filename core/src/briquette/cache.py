"""Compiled code on disk, shared by all targets: content-addressed, self-checking, bounded.

An entry's name is a hash of everything that decides its bytes, so entries never become stale, only unused. There
are no locks: an entry appears by an atomic rename, and two processes that compile the same source at once write
the same thing. Nothing that goes wrong with the directory is an error: code is then compiled anew.

One entry is a file of 48 bytes of header and the payload::

    8 bytes   magic b"BRQC\\r\\n\\x1a\\x01"
    u64       payload bytes, little-endian
    16 bytes  XXH3-128 of the payload
    16 bytes  first half of the key
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, Union

import xxhash

from . import settings
from ._folders import core_version
from .errors import UsageError

DEFAULT_MAX_BYTES: Final = 512 << 20
_LAYOUT: Final = "v1"
_SUFFIX: Final = ".brqc"
_MAGIC: Final = b"BRQC\r\n\x1a\x01"
_HEADER_BYTES: Final = 48
#: a use is noted (in the file's mtime) at most this often, in seconds: a hit should not cost a write on a network disk
_TOUCH_INTERVAL: Final = 60.0
#: temporary files older than this, in seconds, were left by a process that died
_STALE_TEMPORARY: Final = 3600.0

#: what a key may be made of
KeyPart: TypeAlias = Union[str, bytes, int, Sequence["KeyPart"], Mapping[str, "KeyPart"]]


def cache_key(parts: Mapping[str, KeyPart]) -> str:
    """Return the key of compiled code: 64 hexadecimal digits.

    Parameters
    ----------
    parts : mapping of name to str, bytes, int, or sequences and mappings of such
        All that decides the code: source and header texts, options, the compiler's version, the architecture
        or the *resolved* CPU features. The version of briquette-core is added here. Order matters in a
        sequence and not in a mapping.
    """
    digest = hashlib.sha256()
    for piece in _encode({"briquette": core_version(), "layout": _LAYOUT, "parts": parts}):
        digest.update(piece)
    return digest.hexdigest()


def _encode(part: KeyPart) -> Iterator[bytes]:
    """Yield bytes that only `part` yields: every value carries its type and its length."""
    if isinstance(part, str):
        raw = part.encode("utf-8", "surrogateescape")
        yield b"s%d:" % len(raw)
        yield raw
    elif isinstance(part, bytes):
        yield b"b%d:" % len(part)
        yield part
    elif isinstance(part, int):
        yield b"i%d;" % part
    elif isinstance(part, Mapping):
        yield b"m%d:" % len(part)
        for name in sorted(part):
            yield from _encode(name)
            yield from _encode(part[name])
    elif isinstance(part, Sequence):
        yield b"l%d:" % len(part)
        for item in part:
            yield from _encode(item)
    else:
        raise TypeError(
            f"a cache key is made of text, bytes, integers, sequences and mappings, not {type(part).__name__}: {part!r}"
        )


class CacheInfo(NamedTuple):
    """What `Cache.info` reports.

    Attributes
    ----------
    directory, shared : Path or None
        The cache's own directory and the read-only layer below it; None where there is none.
    entries, bytes : int
        In `directory` (the shared layer is not counted).
    max_bytes : int
    problem : str or None
        Why compiled code is not kept at present, in one line; None where it is.
    """

    directory: Path | None
    shared: Path | None
    entries: int
    bytes: int
    max_bytes: int
    problem: str | None


class Cache:
    """A cache of compiled code.

    Parameters
    ----------
    directory : path or None
        Made when first written to. None: nothing is kept.
    shared : path, optional
        A second directory of the same layout, read where `directory` has no entry, never written.
    max_bytes : int
        When the entries exceed it, the ones least recently used are removed.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        *,
        shared: str | os.PathLike[str] | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self.directory = None if directory is None else Path(directory)
        self.shared = None if shared is None else Path(shared)
        self.max_bytes = max_bytes
        self._problem: str | None = None if self.directory else "there is no home directory; set BRIQUETTE_CACHE_DIR"

    @classmethod
    def from_environment(cls) -> Cache:
        """Return the cache that the environment describes.

        `BRIQUETTE_CACHE_DIR` or ``cache_dir`` of the configuration file (default: ``briquette`` in the user's cache
        directory), `BRIQUETTE_CACHE_SHARED_DIR` (default: none), `BRIQUETTE_CACHE_MAX_BYTES` (default: 512 MiB; 0 keeps nothing).

        Raises
        ------
        UsageError
            `BRIQUETTE_CACHE_MAX_BYTES` is not a number of bytes.
        """
        limit = os.environ.get("BRIQUETTE_CACHE_MAX_BYTES") or str(DEFAULT_MAX_BYTES)
        if not (limit.isascii() and limit.isdigit()):
            raise UsageError(f"BRIQUETTE_CACHE_MAX_BYTES is {limit!r}; give a number of bytes, such as {DEFAULT_MAX_BYTES}")
        return cls(
            settings.load().cache_dir or default_directory(),
            shared=os.environ.get("BRIQUETTE_CACHE_SHARED_DIR") or None,
            max_bytes=int(limit),
        )

    def get(self, key: str) -> bytes | None:
        """Return the code stored under `key`, or None. A damaged entry counts as absent, and is removed."""
        if self.directory is not None:
            path = self._path(self.directory, key)
            raw = _read(path)
            if raw is not None:
                payload = _unseal(raw, key)
                if payload is not None:
                    _touch(path)
                    return payload
                with contextlib.suppress(OSError):
                    path.unlink()
        if self.shared is not None:
            raw = _read(self._path(self.shared, key))
            if raw is not None:
                return _unseal(raw, key)
        return None

    def put(self, key: str, payload: bytes) -> bool:
        """Store `payload` under `key` and return whether it was stored; never raises for a bad directory."""
        size = _HEADER_BYTES + len(payload)
        if self.directory is None or size > self.max_bytes:
            return False
        import secrets  # slow to import, and a first call with a filled cache stores nothing

        path = self._path(self.directory, key)
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not tempfile: its files are private, and a directory may be warmed by one user for many.
            with open(temporary, "xb") as file:
                file.write(_seal(payload, key))
            os.replace(temporary, path)
        except OSError as exc:
            self._problem = f"cannot write to {self.directory}: {exc.strerror or exc}"
            with contextlib.suppress(OSError):
                temporary.unlink()
            return False
        self._problem = None
        self._trim(keep=path)
        return True

    def info(self) -> CacheInfo:
        """Return where the cache is and how full."""
        entries = list(self._entries())
        return CacheInfo(
            self.directory, self.shared, len(entries), sum(size for _, size, _ in entries), self.max_bytes, self._problem
        )

    def clean(self) -> int:
        """Remove every entry of `directory` and return the bytes freed. Running programs are not disturbed.

        Raises
        ------
        OSError
            For the first entry that could not be removed, when the others are gone.
        """
        freed = 0
        failed: OSError | None = None
        for _, size, path in self._entries(temporaries=True):
            try:
                path.unlink()
                freed += size
            except FileNotFoundError:  # another process was faster
                continue
            except OSError as exc:
                failed = failed or exc
        if failed is not None:
            raise failed
        return freed

    def _path(self, directory: Path, key: str) -> Path:
        return directory / _LAYOUT / key[:2] / (key + _SUFFIX)

    def _entries(self, temporaries: bool = False) -> Iterator[tuple[float, int, Path]]:
        """Yield (time of last use, bytes, path) of every entry; skips what vanishes meanwhile."""
        if self.directory is None:
            return
        for folder in _scan(self.directory / _LAYOUT):
            for file in _scan(folder):
                if file.name.endswith(_SUFFIX) or (temporaries and file.name.endswith(".tmp")):
                    with contextlib.suppress(OSError):
                        status = file.stat()
                        yield status.st_mtime, status.st_size, Path(file.path)

    def _trim(self, keep: Path) -> None:
        """Remove the entries least recently used until the rest fit, and temporary files that were left behind."""
        files = sorted(self._entries(temporaries=True))
        total = sum(size for _, size, _ in files)
        stale = time.time() - _STALE_TEMPORARY
        for used, size, path in files:
            is_temporary = path.suffix == ".tmp"
            if (used < stale) if is_temporary else (total > self.max_bytes and path != keep):
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size


def default_directory() -> Path | None:
    """Return ``briquette`` in the platform's cache directory of the user, or None where the user has no home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "briquette" / "cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "briquette"
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(configured) if os.path.isabs(configured) else home / ".cache") / "briquette"


def _seal(payload: bytes, key: str) -> bytes:
    return b"".join(
        (_MAGIC, len(payload).to_bytes(8, "little"), xxhash.xxh3_128_digest(payload), bytes.fromhex(key)[:16], payload)
    )


def _unseal(raw: bytes, key: str) -> bytes | None:
    """Return the payload of an entry, or None where a bit of it is wrong."""
    payload = raw[_HEADER_BYTES:]
    return payload if raw == _seal(payload, key) else None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _TOUCH_INTERVAL:
            os.utime(path)


def _scan(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []

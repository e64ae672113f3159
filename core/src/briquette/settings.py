"""User settings: environment variables, over an optional configuration file, over the defaults.

The file is ``$BRIQUETTE_CONFIG``, else ``briquette/config.toml`` in ``$XDG_CONFIG_HOME`` (by default ``~/.config``).

============= ======================= ==============================================================
key           environment variable    value
============= ======================= ==============================================================
disable_packs BRIQUETTE_DISABLE_PACKS distributions to ignore, comma-separated
target        BRIQUETTE_TARGET        default target
threads       BRIQUETTE_NUM_THREADS   threads of the host target, 1 to 1024
cache_dir     BRIQUETTE_CACHE_DIR     directory of compiled code
tune          BRIQUETTE_TUNE          1: measure where no choice is remembered; 0: use none
============= ======================= ==============================================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from .errors import UsageError

#: threads of a run, at most
MAX_THREADS: Final = 1024


class Settings(NamedTuple):
    """The settings in force; None stands for briquette's own choice."""

    disable_packs: tuple[str, ...] = ()
    target: str | None = None
    threads: int | None = None
    cache_dir: Path | None = None
    tune: bool | None = None


def _packs(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be a list of distribution names")
    return tuple(part.strip() for part in parts if part.strip())


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a name")
    return value.strip()


def _threads(value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_THREADS:
        raise ValueError(f"must be a whole number, 1 to {MAX_THREADS}")
    return value


def _directory(value: object) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("must be the path of a directory")
    try:
        return Path(value).expanduser()
    except RuntimeError as exc:  # no home directory
        raise ValueError(f"cannot be expanded: {exc}") from exc


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("0", "1"):
        raise ValueError("must be 1 or 0 (true or false in the file)")
    return value == "1"


_KEYS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "disable_packs": ("BRIQUETTE_DISABLE_PACKS", _packs),
    "target": ("BRIQUETTE_TARGET", _text),
    "threads": ("BRIQUETTE_NUM_THREADS", _threads),
    "cache_dir": ("BRIQUETTE_CACHE_DIR", _directory),
    "tune": ("BRIQUETTE_TUNE", _flag),
}


def load(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that `environ` (default: `os.environ`) and the configuration file give.

    An environment variable that is set but empty counts as not set.

    Raises
    ------
    UsageError
        For a value that cannot be used, an unknown key, or a file that cannot be read; names the key and its source.
    """
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    path = config_path(env)
    if path is not None:
        for key, raw in _read(path, required=bool(env.get("BRIQUETTE_CONFIG"))).items():
            if key not in _KEYS:
                raise UsageError(f"unknown setting {key!r} in {path}; known: {', '.join(_KEYS)}")
            values[key] = _checked(key, raw, str(path))
    for key, (variable, _) in _KEYS.items():
        if env.get(variable, "").strip():
            values[key] = _checked(key, env[variable], variable)
    return Settings(**values)


def config_path(environ: Mapping[str, str]) -> Path | None:
    """Return where the configuration file is looked for, or None where there is no home directory."""
    return _config_path(*(environ.get(name, "") for name in ("BRIQUETTE_CONFIG", "XDG_CONFIG_HOME", "HOME")))


@lru_cache(maxsize=8)  # every run asks
def _config_path(given: str, base: str, home_directory: str) -> Path | None:
    try:
        if given:
            return Path(given).expanduser()
        # the XDG specification has relative paths ignored
        home = Path(base) if os.path.isabs(base) else Path(home_directory or Path.home()) / ".config"
    except RuntimeError:
        return None
    return home / "briquette" / "config.toml"


def _checked(key: str, raw: object, source: str) -> Any:
    try:
        return _KEYS[key][1](raw)
    except ValueError as exc:
        raise UsageError(f"setting {key} = {raw!r} from {source}: it {exc}") from exc


def _read(path: Path, required: bool) -> Mapping[str, Any]:
    try:
        stat = path.stat()
        return _parsed(path, stat.st_mtime_ns, stat.st_size)
    except (FileNotFoundError, NotADirectoryError) as exc:
        if required:
            raise UsageError(f"BRIQUETTE_CONFIG names {path}, which does not exist; create it or unset the variable") from exc
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"the configuration file {path} cannot be read: {exc}") from exc


@lru_cache(maxsize=4)  # settings are looked up in every run
def _parsed(path: Path, mtime_ns: int, size: int) -> Mapping[str, Any]:
    from . import _toml  # parsers are slow to import, and most users have no such file

    text = path.read_text(encoding="utf-8")
    try:
        return _toml.loads(text)
    except _toml.TOMLDecodeError as exc:
        raise UsageError(f"the configuration file {path} is not valid TOML: {exc}") from exc

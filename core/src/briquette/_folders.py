"""Metadata of distributions in plain directories, read without importlib.metadata: importing that takes longer than planning.

Where there may be distributions of another kind (in zip files or eggs, or brought by import hooks) importlib.metadata is asked.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache, reduce
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoints

#: a line of metadata as all tools write them, and a name or a version
_FIELD: Final = re.compile(r"[A-Za-z-]+: .*|[ \t].*", re.ASCII)
_VALUE: Final = re.compile(r"[A-Za-z0-9.+!_-]+")
_SEPARATORS: Final = re.compile(r"[-_.]+")


class Point(NamedTuple):
    """What stands for an `importlib.metadata.EntryPoint`."""

    name: str
    value: str
    group: str
    dist: Folder | None = None

    def load(self) -> Any:
        module, _, attributes = self.value.partition("[")[0].partition(":")  # extras are of no consequence
        return reduce(getattr, filter(None, attributes.strip().split(".")), import_module(module.strip()))


class Folder:
    """What stands for an `importlib.metadata.Distribution`: a directory ``NAME-VERSION.dist-info`` or ``NAME.egg-info``."""

    def __init__(self, place: str, name: str) -> None:
        self._place, self._path = place, os.path.join(place, name)
        self.name = normalized(name.rpartition(".")[0].partition("-")[0])

    def read_text(self, file: str) -> str | None:
        try:
            with open(os.path.join(self._path, file), encoding="utf-8") as found:
                return found.read()
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None

    def locate_file(self, path: str) -> Path:
        return Path(self._place, path)

    @property
    def metadata(self) -> Mapping[str, str]:
        text = self.read_text("METADATA") or self.read_text("PKG-INFO") or ""
        head = text.partition("\n\n")[0].rstrip("\n").split("\n")
        fields = [line.partition(": ")[::2] for line in head if line[:1] not in (" ", "\t")]
        found = {key: value for key, value in fields if key in ("Name", "Version")}
        plain = all(map(_FIELD.fullmatch, head)) and len(found) == 2 and all(map(_VALUE.fullmatch, found.values()))
        once = sorted(key.lower() for key, _ in fields if key.lower() in ("name", "version")) == ["name", "version"]
        return found if plain and once else cast("Mapping[str, str]", self._standard.metadata)

    @property
    def version(self) -> str:
        return self.metadata["Version"]

    @property
    def entry_points(self) -> list[Point] | EntryPoints:
        found, group = [], ""
        for line in map(str.strip, (self.read_text("entry_points.txt") or "").splitlines()):
            name, equals, value = line.partition("=")
            if line.startswith("[") and line.endswith("]"):
                group = line.strip("[]")
            elif line and not line.startswith("#"):
                if not equals or not group:
                    return self._standard.entry_points
                found.append(Point(name.strip(), value.strip(), group, self))
        return found

    @property
    def _standard(self) -> Distribution:
        """What importlib.metadata makes of it, for metadata that are written in an unusual way."""
        from importlib.metadata import PathDistribution

        return PathDistribution(Path(self._path))


def normalized(distribution: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return _SEPARATORS.sub("-", distribution).lower()


def folders() -> list[Folder] | None:
    """Return the metadata directories on `sys.path`, in its order; None where there may be distributions of another kind."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if finders != [PathFinder] or any(str(place).lower().endswith(".egg") for place in sys.path):
        return None
    found = []
    for place in map(str, sys.path):
        try:
            names = os.listdir(place or ".")
        except (FileNotFoundError, PermissionError):
            continue
        except OSError:  # a zip file
            return None
        found += [Folder(place, name) for name in names if name.lower().endswith((".dist-info", ".egg-info"))]
    return found


def distribution(name: str, plain: list[Folder] | None) -> Folder | Distribution | None:
    """Return the distribution that imports come from, by its name as PEP 503 has it; `plain` is what `folders` returns."""
    if plain is not None:
        return next((folder for folder in plain if folder.name == name), None)
    import importlib.metadata

    try:
        return importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


@lru_cache(maxsize=1)
def core_version() -> str:
    """Return the version of the installed briquette-core; 0 where it is run from a source tree."""
    plain = folders()
    if plain is None:
        from importlib.metadata import distributions

    for found in distributions(name="briquette-core") if plain is None else plain:
        if plain is None or found.name == "briquette-core":
            try:
                if found.metadata["Version"]:
                    return str(found.metadata["Version"])
            except Exception:  # what an interrupted uninstall leaves behind, or nobody may read
                continue
    return "0"

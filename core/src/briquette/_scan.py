"""Find packs: read entry points from the metadata of installed distributions, without importing any of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ._folders import Folder, Point, distribution, folders, normalized
from ._load import describe

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

    AnyPoint = EntryPoint | Point

#: entry point group -> what one of its objects is called in messages
GROUPS: Final[Mapping[str, str]] = {
    "briquette.stages": "stage",
    "briquette.harnesses": "harness",
    "briquette.targets": "target",
    "briquette.presets": "preset",
    "briquette.packs": "pack statement",
    "briquette.plugins": "plugin",
    "briquette.aliases": "alias",
}
#: names that core itself holds
BUILTIN: Final[Mapping[str, tuple[str, ...]]] = {"briquette.targets": ("numpy",)}

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ALIAS: Final = re.compile(rf"{_NAME.pattern}\.{_NAME.pattern}")
#: names of distributions, as PEP 508 has them
DISTRIBUTION: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")


def name_problem(group: str, name: str) -> str | None:
    """Return what is wrong with a registered name, or None."""
    if group == "briquette.packs":  # never looked up by name
        return None
    if group == "briquette.aliases":
        if _ALIAS.fullmatch(name):
            return None
        return f"alias {name!r} is not of the form oldpack.stage, in lower-case letters, digits and single hyphens"
    if name in BUILTIN.get(group, ()):
        return f"{GROUPS[group]} {name!r} belongs to briquette-core; rename it"
    if _NAME.fullmatch(name):
        return None
    return f"{GROUPS[group]} name {name!r} may hold only lower-case letters, digits and single hyphens; rename it"


class FoundPack(NamedTuple):
    """A distribution that registers something with briquette.

    Attributes
    ----------
    distribution : str
        Normalized name (PEP 503), so that archives do not depend on how a build backend spells it.
    version, location : str
        As its metadata has them; the directory that holds the metadata.
    points : tuple of EntryPoint or Point
        Those of the known groups, in the order of the file.
    fault : str
        Why the metadata could not be read, or empty.
    shadowed : str
        The copy of the same distribution that stands earlier on the path, or empty.
    """

    distribution: str
    version: str
    location: str = ""
    points: tuple[AnyPoint, ...] = ()
    fault: str = ""
    shadowed: str = ""


def installed() -> list[FoundPack]:
    """Return the packs on `sys.path`, in the order of the path; shadowed copies that differ come too."""
    plain = folders()
    if plain is None:
        from importlib.metadata import distributions

    found: list[FoundPack] = []
    first: dict[str, FoundPack] = {}
    for dist in distributions() if plain is None else plain:
        try:
            text = dist.read_text("entry_points.txt")
        except (OSError, UnicodeDecodeError):
            continue  # nothing says that it is a pack
        if not text or "[briquette." not in text:
            continue
        pack = _read(dist)
        if pack is None:
            continue
        earlier = first.get(pack.distribution)
        if earlier is None:
            winner = _winner(pack, plain)
            if not winner:
                first[pack.distribution] = pack
                found.append(pack)
                continue
        elif (earlier.version, _targets(earlier)) == (pack.version, _targets(pack)):
            continue  # the two metadata directories of an editable install
        else:
            winner = f"{earlier.version} in {earlier.location}"
        found.append(FoundPack(pack.distribution, pack.version, pack.location, pack.points, shadowed=winner))
    return found


def grouped(points: Iterable[AnyPoint]) -> list[FoundPack]:
    """Return the packs of a given list of entry points, one for each distribution, which each must know."""
    packs: dict[str, tuple[Distribution | Folder | None, list[AnyPoint]]] = {}
    for point in points:
        dist = point.dist
        key = normalized(dist.name) if dist is not None else normalized(point.value.partition(":")[0].partition(".")[0])
        packs.setdefault(key, (dist, []))[1].append(point)
    return [
        FoundPack(key, str(dist.version) if dist is not None else "0", points=tuple(p for p in points if p.group in GROUPS))
        for key, (dist, points) in packs.items()
    ]


def _read(dist: Distribution | Folder) -> FoundPack | None:
    location = _location(dist)
    try:
        metadata = dist.metadata
        if "Name" not in metadata or "Version" not in metadata:
            return None  # what an interrupted uninstall leaves behind
        name, version = metadata["Name"], metadata["Version"]
    except Exception:
        return None
    try:
        points = tuple(p for p in dist.entry_points if p.group in GROUPS)
    except Exception as exc:  # lines that are not entry points
        return FoundPack(normalized(name), version, location, fault=f"its entry_points.txt cannot be read: {describe(exc)}")
    return FoundPack(normalized(name), version, location, points)


def _location(dist: Distribution | Folder) -> str:
    try:
        return str(dist.locate_file(""))
    except Exception:  # finders that do not keep files
        return ""


def _winner(pack: FoundPack, plain: list[Folder] | None) -> str:
    """Return where an import of `pack`'s distribution would come from instead, or nothing where it is this one."""
    found = distribution(pack.distribution, plain)
    location = _location(found) if found is not None else pack.location
    return "" if location == pack.location else f"another copy, or what is left of one, in {location}"


def _targets(pack: FoundPack) -> list[tuple[str, str, str]]:
    return sorted((p.group, p.name, p.value) for p in pack.points)

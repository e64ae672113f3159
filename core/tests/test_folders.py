"""Metadata read from plain directories: the same as importlib.metadata finds, which is asked where there may be more."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest
from discovery_kit import STAGE, MakePack, stage_pack

from briquette import _folders, _scan
from briquette._folders import Point
from briquette.discovery import Registry

pytestmark = pytest.mark.usefixtures("own_settings")


def found() -> list[Any]:
    """Return what is installed, sorted: within a directory importlib.metadata has an order of its own."""
    packs = _scan.installed()
    return sorted(
        (p.location, p.distribution, p.version, bool(p.fault), p.shadowed, [(e.group, e.name, e.value) for e in p.points])
        for p in packs
    )


def found_both_ways(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    assert _folders.folders() is not None
    plainly = found()
    with monkeypatch.context() as patch:
        patch.setattr(_scan, "folders", lambda: None)
        assert found() == plainly
    return plainly


def test_what_is_installed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(found_both_ways(monkeypatch)) > 5


def test_unusual_spellings(pack: MakePack, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "# ours\n\n[console_scripts]\nacme=acme:main\n"
    where = pack(
        "Acme.One", text + "[briquette.stages]\n a-b = acme_one : Squash [fast]\r\n[briquette.presets]\nx=y\n", version="1+a.2"
    )
    metadata = where / "acme_three.egg-info"
    metadata.mkdir()
    metadata.joinpath("PKG-INFO").write_text("Metadata-Version: 2.1\nName: Acme_Three\nVersion: 3\n")
    metadata.joinpath("entry_points.txt").write_text("[briquette.packs]\ninfo = acme_three\n")
    where.joinpath("acme_four-1.egg-info").write_text("Metadata-Version: 1.0\nName: acme-four\nVersion: 1\n")  # a file
    packs = {p[1]: p for p in found_both_ways(monkeypatch)}
    points = [("briquette.stages", "a-b", "acme_one : Squash [fast]"), ("briquette.presets", "x", "y")]
    assert (packs["acme-one"][2], packs["acme-one"][-1]) == ("1+a.2", points)
    assert packs["acme-three"][2] == "3"


@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize("bare", [True, False])
def test_copies(pack: MakePack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, earlier: bool, bare: bool) -> None:
    stage_pack(pack, "acme-one")
    other = str(stage_pack(pack, "acme-one", version="2.0", under="other"))
    if bare:  # a copy that registers nothing
        Path(other, "acme_one-2.0.dist-info", "entry_points.txt").unlink()
    monkeypatch.setattr(sys, "path", [other, *sys.path] if earlier else [*sys.path, other])
    shadowed = {p[2]: bool(p[4]) for p in found_both_ways(monkeypatch) if p[1] == "acme-one"}
    assert shadowed == ({"1.0": earlier} if bare else {"1.0": earlier, "2.0": not earlier})


@pytest.mark.parametrize("headers", ["", "Name: acme-one\n", "Metadata-Version: 2.1\n\nName: acme-one\nVersion: 1.0\n"])
def test_metadata_without_name_or_version(pack: MakePack, monkeypatch: pytest.MonkeyPatch, headers: str) -> None:
    where = stage_pack(pack, "acme-one")
    where.joinpath("acme_one-1.0.dist-info", "METADATA").write_text(headers)
    assert "acme-one" not in {p[1] for p in found_both_ways(monkeypatch)}


@pytest.mark.parametrize("text", [b"[briquette.stages]\nsquash\n", b"[briquette.stages]\na = b\n\xff = c\n"])
def test_entry_points_that_are_none(pack: MakePack, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    where = stage_pack(pack, "acme-one")
    where.joinpath("acme_one-1.0.dist-info", "entry_points.txt").write_bytes(text)
    found_both_ways(monkeypatch)


ORDINARY = "Metadata-Version: 2.1\nName: acme-one\nVersion: 1.0\n"


@pytest.mark.parametrize(
    "headers",
    [
        ORDINARY.lower(),
        ORDINARY.replace(": ", ":"),
        ORDINARY.replace(": ", ":\t"),
        ORDINARY.replace("\n", "\r\n"),
        "\ufeff" + ORDINARY,
        "\n" + ORDINARY,
        "junk\n" + ORDINARY,
        ORDINARY + "Name: other\nVersion: 2.0\n",
        ORDINARY + "Summary: a\x85Version: 3\x0cVersion: 4\u2028Version: 5\n",
        ORDINARY.replace("\nV", "\x0bV"),
        ORDINARY.replace(" 1.0", ""),
        ORDINARY + "Description: of one line\n        Version: 9\n",
    ],
)
def test_metadata_written_in_unusual_ways(pack: MakePack, monkeypatch: pytest.MonkeyPatch, headers: str) -> None:
    where = stage_pack(pack, "acme-one")
    where.joinpath("acme_one-1.0.dist-info", "METADATA").write_bytes(headers.encode())
    found_both_ways(monkeypatch)


@pytest.mark.parametrize("before", ["; ours\n", "\ufeff", "a = b\n", "\n# ours\n"])
def test_entry_points_written_in_unusual_ways(pack: MakePack, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    file = stage_pack(pack, "acme-one").joinpath("acme_one-1.0.dist-info", "entry_points.txt")
    file.write_bytes((before + file.read_text()).encode())
    found_both_ways(monkeypatch)


@pytest.mark.parametrize(
    "left", [None, "", "Metadata-Version: 2.1\nName: briquette-core\n", b"Name: briquette-core\nVersion: \xff"]
)
def test_what_is_left_of_another_core_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: str | bytes | None
) -> None:
    expected, folder = importlib.metadata.version("briquette-core"), tmp_path / "briquette_core-0.0.1.dist-info"
    folder.mkdir()
    if left is not None:
        folder.joinpath("METADATA").write_bytes(left if isinstance(left, bytes) else left.encode())
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _folders.core_version.__wrapped__() == expected
    monkeypatch.setattr(_folders, "folders", lambda: None)
    assert _folders.core_version.__wrapped__() == expected


def test_packs_in_a_zip_file(pack: MakePack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    where = stage_pack(pack, "acme-one", under="packed")
    with zipfile.ZipFile(tmp_path / "packs.zip", "w") as file:
        for path in where.rglob("*"):
            file.write(path, path.relative_to(where))
    monkeypatch.syspath_prepend(str(tmp_path / "packs.zip"))
    assert _folders.folders() is None
    assert Registry.scan().stage_class("acme-one:squash").name == "squash"


def test_import_hooks_that_bring_distributions(pack: MakePack, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.metadata.PathDistribution(stage_pack(pack, "acme-one", under="elsewhere") / "acme_one-1.0.dist-info")

    class Hook(PathFinder):
        @classmethod
        def find_distributions(cls, *_: Any) -> Any:  # type: ignore[override]
            return iter([there])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook])
    assert _folders.folders() is None
    assert "acme-one" in {p[1] for p in found()}


def test_the_version_of_core() -> None:
    for plain in (_folders.folders(), None):
        core = _folders.distribution("briquette-core", plain)
        assert core is not None
        assert core.metadata["Version"] == importlib.metadata.version("briquette-core")
        assert _folders.distribution("acme-none", plain) is None


@pytest.mark.parametrize(
    "value", ["acme_one", "acme_one:Squash", "acme_one:Squash.name", "acme_one : Squash", "acme_one:Squash [x]"]
)
def test_points_load_what_entry_points_load(pack: MakePack, value: str) -> None:
    pack("acme-one", {}, STAGE.format(cls="Squash", name="squash"))
    point = Point("squash", value, "briquette.stages")
    assert point.load() is importlib.metadata.EntryPoint(*point[:3]).load()

"""Fixtures of core's tests."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest

# helpers are modules of this folder; tests are imported by path, so the folder is put on the path here
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No caller's settings: neither variables nor a configuration file."""
    monkeypatch.delenv("BRIQUETTE_DISABLE_PACKS", raising=False)
    monkeypatch.delenv("BRIQUETTE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Install distributions into a directory of their own, first on `sys.path`; forget their modules afterwards."""
    before = set(sys.modules)
    site = tmp_path / "site"

    def make(
        name: str,
        entry_points: Mapping[str, Mapping[str, str]] | str,
        code: str | None = "",
        version: str = "1.0",
        under: str = "site",
    ) -> Path:
        where = tmp_path / under
        info = where / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nA pack.\n")
        if not isinstance(entry_points, str):
            groups = [f"[{g}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for g, names in entry_points.items()]
            entry_points = "\n".join(groups)
        info.joinpath("entry_points.txt").write_text(entry_points)
        if code is not None:
            where.joinpath(f"{name.replace('-', '_')}.py").write_text(textwrap.dedent(code))
        return where

    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    yield make
    for module in set(sys.modules) - before:
        if module.startswith(("acme", "zeta")):
            del sys.modules[module]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module `acme_fake` that exists in memory only."""
    fake = ModuleType("acme_fake")
    monkeypatch.setitem(sys.modules, "acme_fake", fake)
    return fake

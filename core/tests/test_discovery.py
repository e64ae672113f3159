"""Discovery: names without imports, one object at a time, names that collide, lookups that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from discovery_kit import STAGE, MakePack, make_stage, point, stage_pack, timed

from briquette import discovery
from briquette.discovery import Registry
from briquette.errors import (
    LookupFailed,
    MissingPack,
    PackError,
)

pytestmark = pytest.mark.usefixtures("own_settings")

# -- names cost nothing ------------------------------------------------------------------------------------


def test_listing_imports_nothing(pack: MakePack) -> None:
    pack(
        "acme-all",
        {f"briquette.{g}": {"thing": "acme_all:x"} for g in ("stages", "harnesses", "targets", "presets", "plugins", "packs")},
        "raise AssertionError('imported')",
    )
    registry = Registry.scan()
    assert "thing" in registry.stages()
    assert "thing" in registry.presets()
    assert {"numpy", "thing"} <= set(registry.names("briquette.targets"))
    (status,) = [s for s in registry.packs() if s.distribution == "acme-all"]
    assert (status.state, status.version, status.names["harnesses"]) == ("not loaded", "1.0", ("thing",))
    assert registry.stage_origin("thing").qualified == "acme-all:thing"
    assert "acme_all" not in sys.modules


def test_importing_discovery_reads_no_metadata_and_needs_no_pluggy() -> None:
    code = "import sys, briquette.discovery; print({'importlib.metadata', 'pluggy', 'tomllib', 'tomli'} & set(sys.modules))"
    # numpy imports none of them either, or this would have to subtract what it does
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_scan_is_quick() -> None:
    Registry.scan()
    best = min(timed(Registry.scan) for _ in range(5))
    assert best < 0.03


def test_loads_one_object_at_a_time(pack: MakePack) -> None:
    code = STAGE.format(cls="Squash", name="squash")
    pack("acme-one", {"briquette.stages": {"squash": "acme_one:Squash", "other": "acme_other:Gone"}}, code)
    registry = Registry.scan()
    cls = registry.stage_class("squash")
    assert cls.name == "squash"
    assert registry.stage_class("acme-one:squash") is cls
    assert registry.stage_class("Acme_One:squash") is cls
    assert "acme_other" not in sys.modules
    (status,) = [s for s in registry.packs() if s.distribution == "acme-one"]
    assert status.state == "loaded"


def test_origin_of_a_class(pack: MakePack) -> None:
    stage_pack(pack, "acme-one", version="2.5")
    stage_pack(pack, "acme-two")
    registry = Registry.scan()
    cls = registry.stage_class("acme-one:squash")
    origin = registry.stage_origin(cls)
    assert (origin.distribution, origin.version, origin.entry_point, origin.value) == (
        "acme-one",
        "2.5",
        "squash",
        "acme_one:Squash",
    )
    assert registry.qualified(cls) == "acme-one:squash"
    assert registry.qualified(registry.stage_class("acme-two:squash")) == "acme-two:squash"


def test_origin_of_a_class_behind_another_name_of_its_module(module: ModuleType) -> None:
    module.alias_of_it = make_stage("squash")  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point("squash", "acme_fake:alias_of_it")])
    assert registry.qualified(module.alias_of_it) == "acme-one:squash"


def test_origin_of_an_unregistered_class_says_what_to_add() -> None:
    with pytest.raises(LookupFailed, match=r'squash = "[\w.]+:Made" to the group briquette\.stages'):
        Registry([]).stage_origin(make_stage("squash"))


# -- names that collide ------------------------------------------------------------------------------------


def test_two_packs_with_one_name(pack: MakePack) -> None:
    stage_pack(pack, "acme-one")
    stage_pack(pack, "acme-two", version="3.1")
    registry = Registry.scan()
    with pytest.raises(PackError, match="registered more than once") as caught:
        registry.stage_class("squash")
    for part in ("acme-one 1.0", "acme-two 3.1", "'acme-one:squash'", "'acme-two:squash'"):
        assert part in str(caught.value)
    assert registry.stage_class("acme-one:squash").__module__ == "acme_one"
    assert registry.stage_class("acme-two:squash").__module__ == "acme_two"
    assert {"acme-one:squash", "acme-two:squash"} <= set(registry.stages())
    assert "squash" not in registry.stages()
    notes = {s.distribution: s.notes for s in registry.packs()}
    assert notes["acme-one"] == ("stage 'squash' is also registered by acme-two 3.1; write 'acme-one:squash'",)


def test_names_that_differ_by_case_only(pack: MakePack) -> None:
    stage_pack(pack, "acme-one", "squash")
    stage_pack(pack, "acme-two", "Squash")
    registry = Registry.scan()
    for name in ("squash", "Squash", "SQUASH"):
        with pytest.raises(PackError, match=r"case only: 'squash' of pack acme-one 1\.0 and 'Squash' of pack acme-two 1\.0"):
            registry.stage_class(name)
    assert registry.stage_class("acme-one:squash").__module__ == "acme_one"
    with pytest.raises(PackError, match="only lower-case"):
        registry.stage_class("acme-two:Squash")


def test_a_name_in_capitals_is_not_another_spelling(pack: MakePack) -> None:
    stage_pack(pack, "acme-one")
    with pytest.raises(LookupFailed, match=r"no stage 'SQUASH' is registered.*did you mean 'squash'"):
        Registry.scan().stage_class("SQUASH")


def test_one_pack_that_registers_a_name_twice(module: ModuleType) -> None:
    module.A, module.B = make_stage("squash"), make_stage("squash")  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point("squash", "acme_fake:A"), point("squash", "acme_fake:B")])
    for name in ("squash", "acme-one:squash"):
        with pytest.raises(PackError, match="registered twice, as acme_fake:A and acme_fake:B"):
            registry.stage_class(name)
    same = Registry.from_entry_points([point("squash", "acme_fake:A"), point("squash", "acme_fake:A")])
    assert same.stage_class("squash") is module.A


def test_a_refused_pack_does_not_make_a_name_ambiguous(module: ModuleType) -> None:
    module.A, module.info = make_stage("squash"), {"python_api": ">=99"}  # type: ignore[attr-defined]
    registry = Registry.from_entry_points(
        [
            point("squash", "acme_fake:A"),
            point("squash", "acme_gone:B", dist="acme-two"),
            point("info", "acme_fake:info", "packs", dist="acme-two"),
        ]
    )
    assert registry.stage_class("squash") is module.A
    assert registry.stages() == ("squash",)


# -- lookups that fail -------------------------------------------------------------------------------------


def test_lookup_of_nothing_lists_what_there_is(pack: MakePack) -> None:
    stage_pack(pack, "acme-one")
    registry = Registry.scan()
    with pytest.raises(LookupFailed, match=r"no stage 'quux' is registered; there are: .*squash"):
        registry.stage_class("quux")
    with pytest.raises(LookupFailed, match=r"pack acme-one 1\.0 registers no stage 'quux'; there are"):
        registry.stage_class("acme-one:quux")
    with pytest.raises(LookupFailed, match=r"no target 'quux' is registered; there are: .*numpy"):
        registry.target("quux")


def test_qualified_name_of_a_pack_that_is_not_installed() -> None:
    with pytest.raises(MissingPack, match="pip install acme-three") as caught:
        Registry([]).stage_class("Acme.Three:squash")
    assert (caught.value.stage, caught.value.distribution) == ("Acme.Three:squash", "acme-three")
    with pytest.raises(MissingPack) as odd:
        Registry([]).stage_class("rm -rf;:squash")
    assert "pip install" not in str(odd.value)


def test_disabled_packs(pack: MakePack, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_pack(pack, "acme-one")
    monkeypatch.setenv("BRIQUETTE_DISABLE_PACKS", "Acme_One, not-installed")
    registry = Registry.scan()
    with pytest.raises(LookupFailed, match=r"disabled: acme-one 1\.0, which registers it"):
        registry.stage_class("squash")
    with pytest.raises(PackError, match="disabled by disable_packs"):
        registry.stage_class("acme-one:squash")
    (status,) = [s for s in registry.packs(load=True) if s.distribution == "acme-one"]
    assert status.state == "disabled"
    assert "acme_one" not in sys.modules


def test_a_shadowed_copy_is_listed_and_not_used(pack: MakePack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage_pack(pack, "acme-one", version="2.0")
    stage_pack(pack, "acme-one", version="1.0", under="later")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "later")])
    registry = Registry.scan()
    assert registry.stage_origin("squash").version == "2.0"
    first, second = (s for s in registry.packs() if s.distribution == "acme-one")
    assert (first.version, first.state) == ("2.0", "not loaded")
    assert (second.version, second.state) == ("1.0", "shadowed")
    assert "2.0" in second.reason


def test_a_copy_hidden_by_one_without_entry_points(pack: MakePack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pack("acme-one", "", version="2.0")
    stage_pack(pack, "acme-one", version="1.0", under="later")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "later")])
    registry = Registry.scan()
    assert "squash" not in registry.stages()
    (status,) = [s for s in registry.packs() if s.distribution == "acme-one"]
    assert status.state == "shadowed"
    with pytest.raises(MissingPack, match=r"hidden by .* in .*; remove that"):
        registry.stage_class("acme-one:squash")


def test_the_two_metadata_folders_of_an_editable_install_are_one_pack(
    pack: MakePack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage_pack(pack, "acme-one")
    stage_pack(pack, "acme-one", under="src")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "src")])
    (status,) = [s for s in Registry.scan().packs() if s.distribution == "acme-one"]
    assert status.state == "not loaded"


# -- the registry of the process ---------------------------------------------------------------------------


def test_registry_is_kept_until_refreshed(pack: MakePack) -> None:
    with discovery.use(Registry.scan()):
        before = discovery.registry()
        stage_pack(pack, "acme-late")
        assert discovery.registry() is before
        assert "squash" not in before.stages()
        assert "squash" in discovery.refresh().stages()
        assert "squash" in discovery.registry().stages()


def test_use_restores() -> None:
    before = discovery.registry()
    inside = Registry([])
    with pytest.raises(LookupFailed), discovery.use(inside):
        discovery.registry().stage_class("squash")
    assert discovery.registry() is before is not inside


def test_core_is_not_a_pack_and_first_party_names_are_guarded(pack: MakePack) -> None:
    first = next((n for n in Registry.scan().stages() if ":" not in n), None)
    if first is None:
        pytest.skip("no first-party pack is installed beside core")
    owner = Registry.scan().stage_origin(first).distribution
    stage_pack(pack, "acme-thief", first)
    with pytest.raises(PackError, match=f"{owner} .*acme-thief|acme-thief.*{owner} "):
        Registry.scan().stage_class(first)

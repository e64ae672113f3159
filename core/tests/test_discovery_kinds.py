"""API ranges of packs; harnesses, targets and presets; the stages that archives name."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType

import pytest
from discovery_kit import STAGE, MakePack, make_stage, point, stage_pack

from briquette._scan import installed
from briquette.discovery import PackWarning, Registry
from briquette.errors import (
    ArchiveError,
    ArchiveVersionError,
    MissingPack,
    PackError,
)
from briquette.packinfo import PackInfo

pytestmark = pytest.mark.usefixtures("own_settings")

# -- API ranges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "info", ["PackInfo(python_api='>=2', policy_api='==1')", "{'python_api': '>=2', 'policy_api': '>=1,<2'}"]
)
def test_a_pack_from_the_future_is_refused(pack: MakePack, info: str) -> None:
    code = f"from briquette.packinfo import PackInfo\nINFO = {info}\n" + STAGE.format(cls="Squash", name="squash")
    groups = {"briquette.stages": {"squash": "acme_new:Squash"}, "briquette.packs": {"acme-new": "acme_new:INFO"}}
    pack("acme-new", groups, code)
    registry = Registry.scan()
    for _ in range(2):
        with pytest.raises(PackError, match=r"acme-new 1\.0.*python_api >=2 \(this briquette has 1\)") as caught:
            registry.stage_class("squash")
        assert "policy_api" not in str(caught.value)
    (status,) = [s for s in registry.packs() if s.distribution == "acme-new"]
    assert status.state == "incompatible"
    with pytest.raises(PackError, match="is incompatible: it was written for"):
        registry.stage_class("acme-new:squash")


def test_a_pack_in_range_is_accepted(module: ModuleType) -> None:
    module.info, module.A = PackInfo(python_api=">=1,<2", hook_api="!=7"), make_stage("squash")  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point("x", "acme_fake:info", "packs"), point("squash", "acme_fake:A")])
    assert registry.stage_class("squash") is module.A


@pytest.mark.parametrize("info", [3, {"pyton_api": ">=1"}, {"python_api": 1}, {"python_api": ">=1.0"}])
def test_unreadable_ranges_refuse_the_pack(module: ModuleType, info: object) -> None:
    module.info, module.A = info, make_stage("squash")  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point("x", "acme_fake:info", "packs"), point("squash", "acme_fake:A")])
    with pytest.raises(PackError, match="its API ranges cannot be read: DeclarationError"):
        registry.stage_class("squash")
    assert registry.packs()[0].state == "broken"


# -- harnesses, targets, presets ---------------------------------------------------------------------------


HARNESS = """
from briquette.harness import Harness
class H(Harness):
    name = "{name}"
    def refuse(self, *a): return "no"
    def program(self, *a): raise NotImplementedError
"""


def test_harnesses_leave_out_the_broken_with_one_warning(pack: MakePack) -> None:
    pack("acme-one", {"briquette.harnesses": {"lanes": "acme_one:H"}}, HARNESS.format(name="lanes"))
    pack("acme-two", {"briquette.harnesses": {"wide": "acme_two:H"}}, "raise SystemExit(3)")
    pack("acme-three", {"briquette.harnesses": {"odd": "acme_three:H"}}, HARNESS.format(name="even"))
    registry = Registry([f for f in installed() if f.distribution.startswith("acme")])
    with pytest.warns(PackWarning) as caught:
        first = registry.harnesses()
    assert [h.name for h in first] == ["lanes"]
    said = sorted(str(w.message) for w in caught)
    assert len(said) == 2
    assert "harness 'odd' of pack acme-three 1.0 is left out" in said[0]
    assert "harness 'wide' of pack acme-two 1.0 is left out: SystemExit: 3" in said[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.harnesses()[0] is first[0]
    assert registry.harness("lanes") is first[0]


def test_harnesses_of_one_name_are_left_out_unless_qualified(pack: MakePack) -> None:
    for dist in ("acme-one", "acme-two"):
        pack(dist, {"briquette.harnesses": {"lanes": f"{dist.replace('-', '_')}:H"}}, HARNESS.format(name="lanes"))
    registry = Registry([f for f in installed() if f.distribution.startswith("acme")])
    with pytest.warns(PackWarning, match="'lanes' of pack acme-one 1.0 and 'lanes' of pack acme-two 1.0"):
        assert registry.harnesses() == []
    assert registry.harness("acme-two:lanes").name == "lanes"


def test_a_target_whose_constructor_fails(pack: MakePack) -> None:
    code = "from briquette.target import Target\nclass T(Target):\n    name = 'gpu'\n"  # abstract
    pack("acme-one", {"briquette.targets": {"gpu": "acme_one:T"}}, code)
    registry = Registry([f for f in installed() if f.distribution.startswith("acme")])
    with pytest.warns(PackWarning, match="target 'gpu' of pack acme-one 1.0 is left out: TypeError"):
        assert registry.targets() == []


def test_presets_as_text_path_and_callable(pack: MakePack) -> None:
    code = """
    import pathlib
    TEXT = "title = 'text'"
    PATH = pathlib.Path(__file__).with_name("acme.toml")
    def make(): return "title = 'made'"
    """
    names = {"text": "acme_one:TEXT", "path": "acme_one:PATH", "made": "acme_one:make"}
    where = pack("acme-one", {"briquette.presets": names}, code)
    registry = Registry.scan()
    with pytest.raises(PackError, match="FileNotFoundError"):
        registry.preset("path")
    where.joinpath("acme.toml").write_text("title = 'größe'", encoding="utf-8")
    registry = Registry.scan()
    assert [registry.preset(name) for name in names] == ["title = 'text'", "title = 'größe'", "title = 'made'"]


# -- archives ----------------------------------------------------------------------------------------------


def test_archived_stage_is_found(pack: MakePack) -> None:
    stage_pack(pack, "acme-one")
    registry = Registry.scan()
    assert registry.resolve_archived("acme-one:squash", 1, "0.3") is registry.stage_class("squash")


def test_archived_stage_of_an_absent_pack() -> None:
    with pytest.raises(MissingPack) as caught:
        Registry([]).resolve_archived("Acme_Codec:squash", 1, "0.3")
    error = caught.value
    assert (error.stage, error.version, error.distribution) == ("acme-codec:squash", "0.3", "acme-codec")
    assert "pip install acme-codec" in str(error)
    assert "'0.3'" in str(error)


def test_archived_stage_that_the_installed_pack_lacks(pack: MakePack) -> None:
    stage_pack(pack, "acme-one")
    pack("acme-bad", {"briquette.stages": {"bad": "acme_bad:Bad"}}, "raise AssertionError('imported for nothing')")
    with pytest.raises(MissingPack, match=r"installed 1\.0 registers no such stage.*pip install --upgrade acme-one"):
        Registry.scan().resolve_archived("acme-one:crush", 1, "7.0")
    assert "acme_bad" not in sys.modules


@pytest.mark.parametrize("stage", ["squash", ":squash", "acme-one:", "a; rm -rf ~:squash", "$(x):squash", "-r x:squash"])
def test_archived_name_that_is_not_one(stage: str) -> None:
    with pytest.raises(ArchiveError, match="not of the form pack:stage") as caught:
        Registry([]).resolve_archived(stage, 1, "1")
    assert "pip install" not in str(caught.value)


def test_archived_format_version(module: ModuleType) -> None:
    module.A = make_stage("squash", format_version=3, reads_versions=(2, 3))  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point("squash", "acme_fake:A")])
    assert registry.resolve_archived("acme-one:squash", 2, "0.1") is module.A
    for version in (1, 4):
        with pytest.raises(
            ArchiveVersionError, match=f"format version {version} .*acme-one 1.0 reads 2, 3; run: pip install --up"
        ):
            registry.resolve_archived("acme-one:squash", version, "9.0")


def test_archived_stage_that_moved_packs(module: ModuleType) -> None:
    module.A = make_stage("crush")  # type: ignore[attr-defined]
    points = [
        point("crush", "acme_fake:A", dist="acme-new"),
        point("acme-old.squash", "acme_fake:A", "aliases", dist="acme-new"),
    ]
    registry = Registry.from_entry_points(points)
    assert registry.resolve_archived("acme-old:squash", 1, "0.1") is module.A
    assert registry.qualified(module.A) == "acme-new:crush"
    with pytest.raises(MissingPack):
        registry.resolve_archived("acme-old:crush", 1, "0.1")
    still_there = Registry.from_entry_points([*points, point("other", "acme_gone:B", dist="acme-old")])
    assert still_there.resolve_archived("acme-old:squash", 1, "0.1") is module.A


def test_aliases_must_name_pack_and_stage(module: ModuleType) -> None:
    registry = Registry.from_entry_points([point("squash", "acme_fake:A", "aliases")])
    assert "not of the form oldpack.stage" in registry.packs()[0].reason


def test_archived_stage_of_a_broken_pack_says_why(pack: MakePack) -> None:
    pack("acme-bad", {"briquette.stages": {"bad": "acme_bad:Bad"}}, "raise ImportError('no libfoo')")
    with pytest.raises(PackError, match="no libfoo") as caught:
        Registry.scan().resolve_archived("acme-bad:bad", 1, "1.0")
    assert not isinstance(caught.value, MissingPack)


def test_archived_stage_of_a_disabled_pack_says_so(pack: MakePack) -> None:
    stage_pack(pack, "acme-one")
    with pytest.raises(PackError, match="is disabled"):
        Registry(installed(), ["acme-one"]).resolve_archived("acme-one:squash", 1, "1.0")

"""Discovery: names without imports, one object at a time, and packs that misbehave in every way."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from briquette import discovery
from briquette._scan import installed
from briquette.discovery import PackWarning, Registry
from briquette.errors import (
    ArchiveError,
    ArchiveVersionError,
    DeclarationError,
    LookupFailed,
    MissingPack,
    PackError,
)
from briquette.packinfo import PackInfo
from briquette.stage import Stage

STAGE = """
from briquette.stage import Stage
class {cls}(Stage):
    name = "{name}"
"""
MakePack = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BRIQUETTE_DISABLE_PACKS", raising=False)
    monkeypatch.delenv("BRIQUETTE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePack]:
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


def stage_pack(make: MakePack, dist: str, name: str = "squash", **options: str) -> Path:
    module = dist.replace("-", "_")
    return make(dist, {"briquette.stages": {name: f"{module}:Squash"}}, STAGE.format(cls="Squash", name=name), **options)


def point(name: str, value: str, group: str = "stages", dist: str = "acme-one", version: str = "1.0") -> EntryPoint:
    """Return an entry point that says which distribution it is of, without one being installed."""
    made = EntryPoint(name, value, f"briquette.{group}")
    vars(made)["dist"] = SimpleNamespace(name=dist, version=version)
    return made


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module `acme_fake` that exists in memory only."""
    fake = ModuleType("acme_fake")
    monkeypatch.setitem(sys.modules, "acme_fake", fake)
    return fake


def make_stage(name: str, **members: object) -> type[Stage]:
    return type("Made", (Stage,), {"name": name, **members})


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
    best = min(_timed(Registry.scan) for _ in range(5))
    assert best < 0.03


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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


# -- packs that misbehave ----------------------------------------------------------------------------------

FAULTS = {
    "ImportError": ("raise ImportError('no libfoo')", "ImportError: no libfoo"),
    "SystemExit": ("import sys; sys.exit('bye')", "SystemExit: bye"),
    "GeneratorExit": ("raise GeneratorExit", "GeneratorExit"),
    "an error that cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
        "E",
    ),
    "half registers": ("class Half: pass\nraise RuntimeError('half way')", "RuntimeError: half way"),
    "an object that is not there": ("", "AttributeError"),
    "syntax error": ("def", "SyntaxError"),
    "deleted install": (None, "ModuleNotFoundError: No module named 'acme_bad'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_pack_is_kept_with_its_error(pack: MakePack, fault: str) -> None:
    code, said = FAULTS[fault]
    pack("acme-bad", {"briquette.stages": {"bad": "acme_bad:Bad"}}, code)
    stage_pack(pack, "acme-good")
    registry = Registry.scan()
    with pytest.raises(PackError, match=r"stage 'bad' of pack acme-bad 1\.0 cannot be used") as caught:
        registry.stage_class("bad")
    assert said in str(caught.value)
    assert caught.value.__cause__ is not None
    assert registry.stage_class("squash").name == "squash"
    states = {s.distribution: s for s in registry.packs()}
    assert states["acme-bad"].state == "broken"
    assert said in states["acme-bad"].reason
    assert states["acme-good"].state == "loaded"
    with pytest.raises(LookupFailed) as listed:
        registry.stage_class("squahs")
    message = str(listed.value)
    there, _, broken = message.partition("; broken: ")
    assert "squash" in there
    assert "bad" not in there
    assert "did you mean 'squash'?" in there
    assert said in broken
    assert "bad of pack acme-bad 1.0" in broken


def test_a_deleted_install_says_reinstall(pack: MakePack) -> None:
    pack("acme-bad", {"briquette.stages": {"bad": "acme_bad.deep:Bad"}}, None)
    with pytest.raises(PackError, match="own files are not there; reinstall or uninstall acme-bad"):
        Registry.scan().stage_class("bad")


def test_a_missing_dependency_does_not_say_reinstall(pack: MakePack) -> None:
    pack("acme-bad", {"briquette.stages": {"bad": "acme_bad:Bad"}}, "import acme_dependency")
    with pytest.raises(PackError, match="No module named 'acme_dependency'") as caught:
        Registry.scan().stage_class("bad")
    assert "reinstall" not in str(caught.value)


def test_a_failure_is_not_tried_again(pack: MakePack) -> None:
    pack("acme-bad", {"briquette.stages": {"bad": "acme_bad:Bad"}}, "import sys; sys.acme_tries += 1; raise OSError")
    sys.acme_tries = 0  # type: ignore[attr-defined]
    try:
        registry = Registry.scan()
        for _ in range(3):
            with pytest.raises(PackError):
                registry.stage_class("bad")
        assert sys.acme_tries == 1  # type: ignore[attr-defined]
    finally:
        del sys.acme_tries  # type: ignore[attr-defined]


def test_an_interrupt_is_the_users(pack: MakePack) -> None:
    pack(
        "acme-slow",
        {"briquette.stages": {"squash": "acme_slow:Squash"}},
        "import sys\nif sys.acme_interrupt: raise KeyboardInterrupt\n" + STAGE.format(cls="Squash", name="squash"),
    )
    registry = Registry.scan()
    try:
        sys.acme_interrupt = True  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            registry.stage_class("squash")
        sys.acme_interrupt = False  # type: ignore[attr-defined]
        assert registry.stage_class("squash").name == "squash"
    finally:
        del sys.acme_interrupt  # type: ignore[attr-defined]


def test_what_loading_prints_is_a_note(pack: MakePack, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys\nprint('hello', 'there')\nkept = sys.stdout\n" + STAGE.format(cls="Squash", name="squash")
    pack("acme-loud", {"briquette.stages": {"squash": "acme_loud:Squash"}}, code)
    registry = Registry.scan()
    registry.stage_class("squash")
    assert capsys.readouterr().out == ""
    (status,) = [s for s in registry.packs() if s.distribution == "acme-loud"]
    assert status.state == "loaded"
    assert status.notes == ("squash: printed while loading: 'hello there'",)
    print("later", file=sys.modules["acme_loud"].kept)  # a stream that the module kept writes through
    assert capsys.readouterr().out == "later\n"


def test_other_threads_print_as_ever_while_a_pack_loads(pack: MakePack, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
    import threading
    thread = threading.Thread(target=print, args=("from elsewhere",))
    thread.start(); thread.join()
    """
    pack("acme-thread", {"briquette.presets": {"p": "acme_thread:__name__"}}, code)
    assert Registry.scan().preset("p") == "acme_thread"
    assert capsys.readouterr().out == "from elsewhere\n"


def test_a_slow_load_is_noted_and_paid_only_when_used(pack: MakePack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("briquette._load.SLOW", 0.05)
    code = "import time; time.sleep(0.2)\n" + STAGE.format(cls="Squash", name="squash")
    pack("acme-slow", {"briquette.stages": {"squash": "acme_slow:Squash"}}, code)
    registry = Registry.scan()
    assert _timed(registry.packs) < 0.1
    registry.stage_class("squash")
    (status,) = [s for s in registry.packs() if s.distribution == "acme-slow"]
    assert status.notes == ("squash: took 0.2 s to load",)


def test_a_pack_that_looks_up_itself_while_loading(pack: MakePack) -> None:
    code = "from briquette import discovery\ndiscovery.registry().stage_class('squash')\n"
    pack("acme-loop", {"briquette.stages": {"squash": "acme_loop:Squash"}}, code)
    with discovery.use(Registry.scan()) as registry, pytest.raises(PackError, match="is being loaded"):
        registry.stage_class("squash")


def test_threads_load_once(pack: MakePack) -> None:
    code = "import time; time.sleep(0.05)\n" + STAGE.format(cls="Squash", name="squash")
    pack("acme-one", {"briquette.stages": {"squash": "acme_one:Squash"}}, code)
    registry, found = Registry.scan(), []
    threads = [threading.Thread(target=lambda: found.append(registry.stage_class("squash"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_packs_with_load_shows_everything_that_is_broken(pack: MakePack) -> None:
    pack("acme-bad", {"briquette.harnesses": {"bad": "acme_bad:Bad"}}, "raise OSError('a')")
    pack("acme-worse", {"briquette.presets": {"worse": "acme_worse:x"}}, "x = 3")
    states = {s.distribution: s for s in Registry.scan().packs(load=True)}
    assert "OSError: a" in states["acme-bad"].reason
    assert "not a int" in states["acme-worse"].reason


@pytest.mark.parametrize("text", ["[briquette.stages]\nsquash\n", "[briquette.stages]\n= a:b\n", "[briquette.stages]\nx = ???\n"])
def test_malformed_entry_points_do_not_stop_the_rest(pack: MakePack, text: str) -> None:
    pack("acme-bad", text)
    stage_pack(pack, "acme-good")
    registry = Registry.scan()
    assert registry.stage_class("squash").name == "squash"
    (status,) = [s for s in registry.packs(load=True) if s.distribution == "acme-bad"]
    assert status.state == "broken"


def test_metadata_without_a_name_is_passed_over(pack: MakePack) -> None:
    where = stage_pack(pack, "acme-bad")
    (where / "acme_bad-1.0.dist-info" / "METADATA").write_text("")
    stage_pack(pack, "acme-good")
    assert Registry.scan().stage_class("squash").__module__ == "acme_good"


# -- what is registered must be what it is registered as ---------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (int, "it is the class int, which is no subclass of briquette.stage.Stage"),
        (7, "it is a int, which is no subclass"),
        (make_stage("other"), r"Made.name is 'other'; it must equal the entry point's name"),
        (make_stage("squash", format_version=2), "writes format version 2 but reads only 1"),
    ],
)
def test_wrong_stage(module: ModuleType, value: object, said: str) -> None:
    module.it = value  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point("squash", "acme_fake:it")])
    with pytest.raises(DeclarationError, match=f"stage 'squash' of pack acme-one 1.0 cannot be used: .*{said}"):
        registry.stage_class("squash")


@pytest.mark.parametrize("name", ["Squash", "squash it", "squash_it", "-squash", "squash-", "sq--ash", "sqüash", "a.b"])
def test_bad_names(module: ModuleType, name: str) -> None:
    module.It = make_stage(name)  # type: ignore[attr-defined]
    registry = Registry.from_entry_points([point(name, "acme_fake:It")])
    assert registry.stages() == ()
    with pytest.raises(PackError, match="only lower-case letters, digits and single hyphens"):
        registry.stage_class(name)
    assert registry.packs()[0].state == "broken"


def test_a_target_may_not_be_called_numpy(module: ModuleType) -> None:
    registry = Registry.from_entry_points([point("numpy", "acme_fake:It", "targets")])
    with pytest.warns(PackWarning, match="belongs to briquette-core"):
        assert registry.targets() == []


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


def test_the_two_metadata_folders_of_an_editable_install_are_one_pack(
    pack: MakePack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage_pack(pack, "acme-one")
    stage_pack(pack, "acme-one", under="src")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "src")])
    (status,) = [s for s in Registry.scan().packs() if s.distribution == "acme-one"]
    assert status.state == "not loaded"


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

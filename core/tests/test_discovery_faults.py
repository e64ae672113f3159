"""Packs that misbehave in every way, and what is registered but is not what it says."""

from __future__ import annotations

import sys
import threading
from types import ModuleType

import pytest
from discovery_kit import STAGE, MakePack, make_stage, point, stage_pack, timed

from briquette import discovery
from briquette.discovery import PackWarning, Registry
from briquette.errors import (
    DeclarationError,
    LookupFailed,
    PackError,
)

pytestmark = pytest.mark.usefixtures("own_settings")

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
    assert timed(registry.packs) < 0.1
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

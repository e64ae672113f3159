"""`Pipeline` as people build it: from stages, names, presets and files; what is none of these is explained."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pytest
from toys import Toy

import briquette as bq
from briquette import discovery
from briquette.errors import LookupFailed, PipelineError, UsageError
from briquette.stage import Stage


@dataclass(frozen=True)
class Needy(Stage):
    """A stage with a parameter that has no default."""

    level: int
    name: ClassVar[str] = "needy"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: discovery.Registry, name: str) -> type[Toy]:
        if name != "toy":
            raise LookupFailed(f"no stage {name!r} is registered; there are: toy")
        return Toy

    monkeypatch.setattr(discovery.Registry, "stage_class", find)


@pytest.mark.usefixtures("toys")
def test_names_stand_for_stages_with_their_defaults() -> None:
    assert bq.chain("toy", Toy(span=1), "toy") == bq.chain(Toy(), Toy(), Toy())
    pipe = bq.Pipeline()
    assert [pipe.add("toy"), pipe.add("toy"), pipe.add("toy", "last")] == ["toy", "toy-2", "last"]
    with pytest.raises(LookupFailed, match="there are: toy"):
        bq.chain("tay")


def test_a_parameter_without_a_default_must_be_given() -> None:
    assert Needy.from_parameters({"level": 3}) == Needy(3)
    with pytest.raises(PipelineError, match="stage 'needy' needs the parameter 'level', which has no default"):
        Needy.from_parameters({})


@pytest.mark.parametrize("thing", [Toy, 3, None])
def test_what_is_no_stage_is_refused(thing: Any) -> None:
    with pytest.raises(PipelineError, match="is no stage; give an object of a stage's class, or a stage's name"):
        bq.chain(thing)


@pytest.mark.parametrize("load", [bq.Pipeline.from_preset, lambda name: bq.compress([1.0], 1e-3, pipeline=name)])
@pytest.mark.parametrize("name", ["there/is/none", "mine.tml"])
def test_a_path_that_is_no_preset_is_explained(
    load: Callable[[str], Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.tml").write_text('[[stage]]\nuse = "toy"\n')
    with pytest.raises(
        UsageError, match=rf"^'{re.escape(name)}' is no preset; the name of a pipeline's file must end in \.toml$"
    ):
        load(name)


def test_an_unknown_preset_is_looked_up_as_one() -> None:
    with pytest.raises(LookupFailed, match="no preset 'fsat' is registered"):
        bq.Pipeline.from_preset("fsat")


def test_a_word_is_no_toml() -> None:
    with pytest.raises(UsageError, match=r"'fast' is neither TOML text nor a name ending in \.toml; give pathlib\.Path"):
        bq.Pipeline.from_toml("fast")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"cannot read the pipeline .*mine\.toml: "):
        bq.Pipeline.from_toml(tmp_path / "mine.toml")


def test_the_version_is_that_of_the_distribution() -> None:
    assert bq.__version__ == version("briquette-core")
    assert "__version__" in dir(bq)


def test_python_m_runs_the_command_or_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from briquette import __main__ as program

    class Script:
        def load(self) -> Callable[[], None]:
            return lambda: print("ran")

    monkeypatch.setattr(program, "entry_points", lambda **_: [Script()])
    program.main()
    assert capsys.readouterr().out == "ran\n"
    monkeypatch.setattr(program, "entry_points", lambda **_: [])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 5
    assert "pip install briquette" in capsys.readouterr().err

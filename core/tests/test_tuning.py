"""Tuning: what is chosen and remembered, with a harness whose geometries take the time that the test says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running_toys import Far, Program, RunningHarness, ToyMemory
from toys import BARRIER, LOCAL, ToyTarget

from briquette import discovery, tuning
from briquette.cache import Cache
from briquette.errors import DeclarationError, UsageError
from briquette.executor import Executable
from briquette.graph import Graph
from briquette.harness import Direction, Geometry, GroupProgram, GroupRun, Member
from briquette.planner import make_plan
from briquette.settings import load
from briquette.target import KernelSource, Target

X = np.arange(4096, dtype=np.int32)


class Slow(Program):
    """A program that takes its time, or adds something of its own."""

    def __init__(self, chain: Sequence[Member], far: bool, seconds: float, adds: int) -> None:
        super().__init__(chain, far, False)
        self._seconds, self._adds = seconds, adds

    def forward(self, source: Any, run: GroupRun) -> dict[tuple[str, str], Any]:
        time.sleep(self._seconds)
        found = super().forward(source, run)
        self._near(run.out)[:1] += self._adds
        return found

    def inverse(self, values: Mapping[tuple[str, str], Any], run: GroupRun) -> Any:
        time.sleep(self._seconds)
        return super().inverse(values, run)


@dataclass
class Choosy(RunningHarness):
    """Offers a geometry for each of `milliseconds`; notes which it was asked to make a program for."""

    milliseconds: tuple[float, ...] = (3.0, 1.0, 5.0)
    adds: tuple[int, ...] = (0, 0, 0)
    made: list[str] = field(default_factory=list)

    def geometries(self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int) -> Sequence[Geometry]:
        names = "+".join(m.node for m in chain)
        return [Geometry((("way", i),), KernelSource(names, f"{direction} {names}", ())) for i in range(len(self.milliseconds))]

    def program(
        self, chain: Sequence[Member], direction: Direction, target: Target, chunk: int, geometry: Geometry | None = None
    ) -> GroupProgram:
        self.made.append(str(geometry))
        way = dict(geometry.settings)["way"] if geometry is not None else 0
        return Slow(chain, target.memory is not None, self.milliseconds[way] / 1e3, self.adds[way])


class Named(ToyTarget):
    """A target on a processor that has a name."""

    processor = "one"

    def identity(self) -> Mapping[str, str]:
        return {"processor": self.processor}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "ROUNDS", 3)
    monkeypatch.setattr(tuning, "_SECONDS", 0.0)


def executable(harness: Choosy, target: ToyTarget | None = None, **stages: Any) -> Executable:
    graph = Graph.build(stages or {"a": LOCAL, "b": LOCAL}, None)
    target = target or Named()
    return Executable(make_plan(graph, "int32", target, [harness], "auto"), target, {harness.name: harness})


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.brqc"))


def test_the_fastest_is_chosen_used_and_remembered() -> None:
    harness = Choosy()
    run = executable(harness)
    report = tuning.tune(run, X, None, 1)
    assert [(c.direction, c.nodes, c.chosen, c.default, c.kept) for c in report.choices] == [
        ("forward", ("a", "b"), "way 1", "way 0", True),
        ("inverse", ("a", "b"), "way 1", "way 0", True),
    ]
    for choice in report.choices:
        assert list(choice.seconds) == ["way 0", "way 1", "way 2"]
        assert 1.5 < choice.gain < 4.0
        assert min(choice.seconds.values()) >= 1e-3
    assert "way 1: 1." in report.explain()
    harness.made.clear()
    values = run.forward(X, None, 1)[1]
    assert harness.made == []  # the chosen program is there
    another = executable(harness)
    found = another.forward(X, None, 1)[1]
    assert harness.made == ["way 1"]
    assert np.array_equal(found["b", "out"], values["b", "out"])  # type: ignore[index]


def test_a_gain_too_small_to_be_sure_of_changes_nothing() -> None:
    report = tuning.tune(executable(Choosy(milliseconds=(5.0, 4.95))), X, None, 1)
    assert [c.chosen for c in report.choices] == ["way 0", "way 0"]
    assert [c.gain for c in report.choices] == [1.0, 1.0]


def test_geometries_that_make_other_bytes_are_refused() -> None:
    run = executable(Choosy(adds=(0, 1, 0)))
    with pytest.raises(DeclarationError, match="with way 1 than with way 0"):
        tuning.tune(run, X, None, 1)


def test_nothing_to_choose(tmp_path: Path) -> None:
    assert tuning.tune(executable(Choosy(milliseconds=(1.0,))), X, None, 1).choices == ()
    alone = executable(Choosy(), a=BARRIER)
    assert tuning.tune(alone, X, None, 1).choices == ()
    reference = Executable(make_plan(alone.graph, "int32", None, [], "off"), None, {})
    assert "no group has a choice" in tuning.tune(reference, X, None, 1).explain()
    assert entries(tmp_path) == []


def test_memory_of_a_target() -> None:
    target = Named()
    target.memory = ToyMemory()
    run = executable(Choosy(), target)
    for flat in (X, Far(X.copy())):
        assert [c.chosen for c in tuning.tune(run, flat, None, 1).choices] == ["way 1", "way 1"]


@pytest.mark.parametrize("change", ["processor", "source", "candidates", "version", "target"])
def test_a_choice_holds_for_what_it_was_measured_on(change: str) -> None:
    tuning.tune(executable(Choosy()), X, None, 1)
    harness, target = Choosy(), Named()
    stages: dict[str, Any] = {}
    if change == "processor":
        target.processor = "two"
    elif change == "source":
        stages = {"a": LOCAL, "c": LOCAL}
    elif change == "candidates":
        harness.milliseconds = (3.0, 1.0, 5.0, 7.0)
    elif change == "version":
        harness.geometry_version = 2
    else:
        target.name = "toy-2"
    executable(harness, target, **stages).forward(X, None, 1)
    assert harness.made == ["None"]


def damage(path: Path, how: str) -> None:
    raw = path.read_bytes()
    if how == "cut":
        path.write_bytes(raw[: len(raw) // 2])
    elif how == "flipped":
        path.write_bytes(raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
        text = {"no json": b"{", "another form": b"[1]", "no such way": b'{"chosen": {"way": 9}}', "null": b"null"}[how]
        assert Cache.from_environment().put(path.stem, text)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "no json", "another form", "no such way", "null"])
def test_a_damaged_entry_is_as_if_it_were_not_there(tmp_path: Path, how: str) -> None:
    tuning.tune(executable(Choosy()), X, None, 1)
    assert len(entries(tmp_path)) == 3  # one each way, and one that says that there are any
    for path in entries(tmp_path):
        if b"chosen" in path.read_bytes():
            damage(path, how)
    harness = Choosy()
    executable(harness).forward(X, None, 1)
    assert harness.made == ["None"]
    tuning.tune(executable(Choosy()), X, None, 1)
    harness.made.clear()
    executable(harness).forward(X, None, 1)
    assert harness.made == ["way 1"]


def test_the_shared_layer_is_read_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning.tune(executable(Choosy()), X, None, 1)
    shared = tmp_path / "cache"
    before = {path: path.read_bytes() for path in entries(tmp_path)}
    monkeypatch.setenv("BRIQUETTE_CACHE_SHARED_DIR", str(shared))
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "own"))
    harness = Choosy()
    executable(harness).forward(X, None, 1)
    assert harness.made == ["way 1"]
    tuning.tune(executable(Choosy(milliseconds=(1.0, 3.0, 5.0))), X, None, 1)
    assert {path: path.read_bytes() for path in entries(tmp_path)} == before
    harness.made.clear()
    executable(harness).forward(X, None, 1)
    assert harness.made == ["way 0"]  # one's own layer comes first


def test_without_a_cache_directory_the_choice_holds_for_the_run_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIQUETTE_CACHE_MAX_BYTES", "0")
    harness = Choosy()
    run = executable(harness)
    report = tuning.tune(run, X, None, 1)
    assert [c.kept for c in report.choices] == [False, False]
    assert "not remembered" in report.explain()
    harness.made.clear()
    run.forward(X, None, 1)
    assert harness.made == []


def test_the_environment_measures_once_or_ignores(monkeypatch: pytest.MonkeyPatch) -> None:
    large = np.arange(64 * executable(Choosy()).plan.chunk, dtype=np.int32)
    harness = Choosy()
    tuning.once(executable(harness), large, None, 1)
    assert harness.made == []
    monkeypatch.setenv("BRIQUETTE_TUNE", "1")
    run = executable(harness)
    tuning.once(run, large[:-1], None, 1)
    assert harness.made == []
    tuning.once(run, large, None, 1)
    assert "way 2" in harness.made
    for again in (run, executable(harness)):
        harness.made.clear()
        tuning.once(again, large, None, 1)
        assert harness.made == []
    monkeypatch.setenv("BRIQUETTE_TUNE", "0")
    executable(harness).forward(X, None, 1)
    assert harness.made == ["None"]
    monkeypatch.setenv("BRIQUETTE_TUNE", "often")
    with pytest.raises(UsageError, match="BRIQUETTE_TUNE: it must be 1 or 0"):
        discovery.settings()


def test_the_setting_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    for text, value in (("true", True), ("false", False)):
        path.write_text(f"tune = {text}\n")
        assert load({"BRIQUETTE_CONFIG": str(path)}).tune is value
    path.write_text("tune = 2\n")
    with pytest.raises(UsageError, match="must be 1 or 0"):
        load({"BRIQUETTE_CONFIG": str(path)})

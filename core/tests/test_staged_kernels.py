"""Stages with a kernel of their own: planned beside groups, run by the program they bring, NumPy where they bring none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from running_toys import RunningHarness
from toys import BARRIER, LOCAL, Toy, ToyTarget

from briquette import tuning
from briquette.declare import FusionAccess
from briquette.errors import DeclarationError
from briquette.executor import Executable
from briquette.graph import Graph
from briquette.harness import Direction, GroupProgram, GroupRun, StagedKernel
from briquette.planner import make_plan
from briquette.ports import PortType
from briquette.stage import PrimeContext
from briquette.target import Target

CALLS: list[tuple[str, Direction, str, int]] = []


class OwnProgram(GroupProgram):
    """Negates, which the NumPy form does not, so that it shows which of the two ran."""

    primes = True

    def __init__(self, direction: Direction, node: str, types: Mapping[str, PortType], target: Target, chunk: int) -> None:
        self._node = node
        CALLS.append((node, direction, types["in"].dtype, chunk))

    def forward(self, source: Any, run: GroupRun) -> dict[tuple[str, str], Any]:
        np.negative(source, out=run.out)
        run.record.state[self._node] = {"negated": run.chunks}
        return {(self._node, "out"): run.out}

    def inverse(self, values: Mapping[tuple[str, str], Any], run: GroupRun) -> Any:
        assert run.record.scalar(self._node, "negated") == run.chunks
        np.negative(values[self._node, "out"], out=run.out)
        return run.out


@dataclass(frozen=True)
class Own(Toy):
    """A barrier with a kernel of its own for one dialect."""

    access: FusionAccess = FusionAccess.UNFUSABLE
    knows: str = "toy"

    def staged_kernel(self, direction: Direction, dialect: str, types: Mapping[str, PortType]) -> StagedKernel | None:
        return partial(OwnProgram, direction) if dialect == self.knows else None


def executable(nodes: dict[str, Toy], fusion: str = "auto") -> Executable:
    harness, target = RunningHarness(), ToyTarget()
    plan = make_plan(Graph.build(nodes, None), "int32", target, [harness], fusion)
    return Executable(plan, target, {harness.name: harness})


def test_it_is_a_launch_between_groups_and_no_transfer() -> None:
    run = executable({"a": LOCAL, "b": LOCAL, "own": Own(), "c": LOCAL})
    for plan in (run.plan.forward, run.plan.inverse):
        assert {s.nodes: (s.kind, s.harness) for s in plan.steps} == {
            ("a", "b"): ("fused", "toy-strategy"),
            ("own",): ("kernel", ""),
            ("c",): ("kernel", "toy-strategy"),
        }
        assert plan.launches == 3
        assert not plan.transfers
    assert "kernel of its own (the stage): own" in run.plan.explain()


@pytest.mark.parametrize("fusion", ["off", "auto", "force"])
def test_its_program_runs_both_ways_and_its_state_is_kept(fusion: str) -> None:
    CALLS.clear()
    run = executable({"a": LOCAL, "own": Own(), "c": LOCAL}, fusion)
    x = np.arange(20_000, dtype=np.int32)
    record, values = run.forward(x, None, 1)
    assert record.of("own") == {"negated": 3}
    assert np.array_equal(values["c", "out"], -(x + 1) + 1)
    assert np.array_equal(run.inverse(values, record, x.size, 1, np.empty_like(x)), x)
    run.forward(x, None, 1)
    assert CALLS == [("own", "forward", "int32", 8192), ("own", "inverse", "int32", 8192)], "compiled once"


def test_another_dialect_has_the_numpy_form() -> None:
    run = executable({"a": LOCAL, "own": Own(knows="other")})
    assert run.plan.forward.transfers == ("own",)
    _, values = run.forward(np.zeros(5, np.int32), None, 1)
    assert values["own", "out"].tolist() == [2] * 5


def test_there_is_nothing_to_tune() -> None:
    assert tuning.tune(executable({"own": Own()}), np.zeros(9, np.int32), None, 1).choices == ()


def test_what_is_no_policy_is_said_so() -> None:
    run = executable({"a": LOCAL, "own": Own(inverse_access=FusionAccess.REGION_LOCAL, knows="toy")})
    assert run.plan.forward.reasons[0].reason == "own declares no role: UNFUSABLE, a barrier"


def test_priming_knows_the_chunk() -> None:
    seen: list[int] = []

    class Curious(Toy):
        def prime_fused_forward_state(self, ctx: PrimeContext) -> Mapping[str, Any]:
            seen.append(ctx.chunk)
            return {}

    run = executable({"a": Curious(access=FusionAccess.UNFUSABLE), "b": BARRIER})
    run.forward(np.zeros(5, np.int32), None, 1)
    assert seen == [8192]


def test_a_maker_that_fails_is_not_hidden() -> None:
    class Broken(Own):
        def staged_kernel(self, direction: Direction, dialect: str, types: Mapping[str, PortType]) -> StagedKernel | None:
            def fails(*_: Any) -> GroupProgram:
                raise DeclarationError("no such header")

            return fails

    with pytest.raises(DeclarationError, match="no such header"):
        executable({"own": Broken()}).compile()

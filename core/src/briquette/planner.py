"""The planner: finds the chains whose declared roles follow one another and installs the groups that pay most.

It sees declarations only. Which sequences of roles a harness runs is the harness's answer (`Harness.refuse`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, get_args

from .declare import FusedOp, FusionAccess, FusionSpec
from .errors import FusionError, UsageError
from .graph import INPUT, INPUT_PORT, Graph, NodePort, declaring
from .harness import Direction, Harness, Member
from .plan import Buffer, DirectionPlan, EdgeReason, Plan, Step
from .ports import PortType
from .stage import Stage
from .target import Target

FusionMode = Literal["off", "auto", "force"]
FUSION_MODES: Final[tuple[str, ...]] = get_args(FusionMode)


def make_plan(
    graph: Graph, dtype: str, target: Target | None, harnesses: Iterable[Harness], fusion: str, chunk: int | None = None
) -> Plan:
    """Plan both directions.

    Parameters
    ----------
    target : Target or None
        None is the NumPy reference, which runs no harness.
    chunk : int, optional
        Elements of an archive chunk where an archive states them; every span must divide it.
    fusion : {"off", "auto", "force"}
        ``force`` also installs groups that do not pay, and raises `FusionError` where neighbours that both
        declare a fused form do not fuse.
    """
    if fusion not in FUSION_MODES:
        raise UsageError(f"fusion {fusion!r} is unknown; use one of {', '.join(FUSION_MODES)}")
    types = graph.types(dtype)
    size = graph.chunk_for(dtype) if chunk is None else graph.check_chunk(chunk, types)
    by_name = {h.name: h for h in harnesses}
    planners = [_Planner(graph, types, target, by_name, fusion, d, size) for d in ("forward", "inverse")]
    forward, inverse = (p.plan() for p in planners)
    if fusion == "force" and target is not None:
        for planner, plan in zip(planners, (forward, inverse), strict=True):
            failed = [r for r in plan.reasons if {r.src, r.dst} <= set(planner.members)]
            if failed:
                raise FusionError("; ".join(f"{r.src} | {r.dst} ({plan.direction}): {r.reason}" for r in failed))
    return Plan(graph, dtype, target.name if target else "numpy", fusion, size, types, forward, inverse)


def declared(stage: Stage, direction: Direction) -> tuple[FusionSpec, FusedOp | None]:
    """Return what `stage` declares for `direction`."""
    with declaring(stage):
        if direction == "forward":
            return stage.fusion_spec(), stage.fused_op()
        return stage.inverse_fusion_spec(), stage.inverse_fused_op()


def chain_members(
    graph: Graph, types: Mapping[str, Mapping[str, PortType]], nodes: Iterable[str], direction: Direction
) -> list[Member]:
    """Return those of `nodes` that declare both a role and a policy, as a harness sees them."""
    found = []
    for node in nodes:
        spec, op = declared(graph.nodes[node], direction)
        if spec.fusable and op is not None:
            found.append(Member(node, graph.nodes[node], spec, op, types[node]))
    return found


@dataclass(frozen=True, eq=False)
class _Planner:
    graph: Graph
    types: Mapping[str, Mapping[str, PortType]]
    target: Target | None
    harnesses: Mapping[str, Harness]
    fusion: str
    direction: Direction
    chunk: int

    @cached_property
    def members(self) -> dict[str, Member]:
        """The nodes that declare both a role and a policy."""
        return {m.node: m for m in chain_members(self.graph, self.types, self.graph.nodes, self.direction)}

    def plan(self) -> DirectionPlan:
        steps: list[Step] = []
        reasons: dict[tuple[str, str], str] = {}
        for path in self._paths(reasons):
            steps += self._steps(path, reasons)
        rank = {n: i for i, n in enumerate(self.graph.order)}
        steps.sort(key=lambda s: rank[s.nodes[0]])  # a group waits for its head only
        fused = set().union(*(self.graph.inside(s.nodes) for s in steps if s.kind == "fused"))
        elided = tuple(sorted(fused, key=lambda p: (rank[p[0]], self.graph.nodes[p[0]].outputs.index(p[1]))))
        inside = set().union(*(self.graph.inside(s.nodes) for s in steps))  # of groups, and of walks in pieces
        if self.direction == "inverse":
            steps.reverse()
        self._side_reasons(steps, reasons)
        why = tuple(EdgeReason(a, b, reason) for (a, b), reason in reasons.items())
        return DirectionPlan(self.direction, tuple(steps), why, elided, self._buffers(steps, inside))

    # -- chains --------------------------------------------------------------------------------------------

    def _paths(self, reasons: dict[tuple[str, str], str]) -> list[list[str]]:
        """Cut the DAG into maximal linear paths; a cut records its reason."""
        paths: list[list[str]] = []
        for node in self.graph.order:
            stage = self.graph.nodes[node]
            for port in stage.inputs:
                src, src_port = self.graph.sources[node, port]
                if src == INPUT:
                    continue
                why = self._barrier(src, src_port, node, port)
                if why is None:
                    next(p for p in paths if p[-1] == src).append(node)
                    break
                reasons[src, node] = why
            else:
                paths.append([node])
        return paths

    def _barrier(self, src: str, src_port: str, dst: str, dst_port: str) -> str | None:
        producer, consumer = self.graph.nodes[src], self.graph.nodes[dst]
        if src_port != producer.outputs[0]:
            return f"{src}.{src_port} is a side port: it leaves the main path"
        readers = self.graph.consumers[src, src_port]
        if len(readers) > 1:
            return f"{src}.{src_port} fans out to {', '.join(n for n, _ in readers)}"
        if len(consumer.inputs) > 1 or dst_port != consumer.inputs[0]:
            return f"{dst} reads {len(consumer.inputs)} inputs; a group follows one path"
        extra = [p for p in producer.outputs[1:] if p not in producer.fused_aux_outputs()]
        if extra:
            return f"{src} has the output {', '.join(extra)} beside the main path without declaring it in fused_aux_outputs"
        return None

    def _steps(self, path: Sequence[str], reasons: dict[tuple[str, str], str]) -> list[Step]:
        """Choose the groups of one linear path that remove most launches; the rest runs alone."""
        if self.target is None:
            return self._reference_steps(path, reasons)
        size = len(path)
        best: list[tuple[int, int, list[tuple[int, int]]]] = [(0, 0, [])]  # (gain, -groups, groups) of each prefix
        for end in range(1, size + 1):
            options = [best[end - 1]]
            for start in range(end - 1):
                gain = self._gain(path[start:end])
                if gain is not None:
                    before = best[start]
                    options.append((before[0] + gain, before[1] - 1, [*before[2], (start, end)]))
            best.append(max(options, key=lambda o: o[:2]))
        groups = dict(best[size][2])
        steps: list[Step] = []
        at = 0
        while at < size:
            end = groups.get(at, at + 1)
            if end > at + 1:
                steps.append(Step(tuple(path[at:end]), "fused", self._harness(path[at:end])))
            else:
                steps.append(self._alone(path[at]))
            if end < size:
                reasons[path[end - 1], path[end]] = self._why_apart(path, at, end, groups)
            at = end
        return steps

    def _gain(self, chain: Sequence[str]) -> int | None:
        """Return the launches that fusing `chain` removes, None where it cannot or should not fuse."""
        if self.fusion == "off" or self._refusal(chain) is not None:
            return None
        gain = self.harnesses[self._harness(chain)].gain([self.members[n] for n in chain])
        return max(gain, 1) if self.fusion == "force" else gain if gain > 0 else None

    def _refusal(self, chain: Sequence[str]) -> str | None:
        """Return why the nodes of `chain` cannot run as one kernel, or None."""
        return self._runner(tuple(chain))[1]

    def _harness(self, chain: Sequence[str]) -> str:
        """Return the name of the harness that runs the nodes of `chain` as one kernel."""
        return self._runner(tuple(chain))[0]

    def _runner(self, chain: tuple[str, ...]) -> tuple[str, str | None]:
        """Return the first harness that all nodes of `chain` serve and that runs them as one kernel; else why none does."""
        if chain not in self._runners:
            self._runners[chain] = self._find_runner(chain)
        return self._runners[chain]

    @cached_property
    def _runners(self) -> dict[tuple[str, ...], tuple[str, str | None]]:
        return {}

    def _find_runner(self, chain: tuple[str, ...]) -> tuple[str, str | None]:
        assert self.target is not None
        for node in chain:
            if node not in self.members:
                spec, _ = declared(self.graph.nodes[node], self.direction)
                what = "no role: UNFUSABLE, a barrier"
                if spec.fusable:
                    what = "no device policy (fused_op)"
                    if self._brings_kernel(node):
                        what = "a kernel of its own (staged_kernel) and no policy"
                if spec.reason:
                    what += f" ({spec.reason})"
                return "", f"{node} declares {what}"
        members = [self.members[n] for n in chain]
        common = [s for s in members[0].op.strategies if all(s in m.op.strategies for m in members)]
        if not common:
            names = sorted({s for m in members for s in m.op.strategies})
            return "", f"their policies are written for different harnesses: {', '.join(names)}"
        installed = [s for s in common if s in self.harnesses]
        if not installed:
            known = ", ".join(sorted(self.harnesses)) or "none"
            return "", f"the harness {' or '.join(map(repr, common))} is not installed (installed: {known})"
        apart = self._split_side(chain)
        if apart is not None:
            return "", apart
        why: dict[str, str] = {}
        for name in installed:
            refused = self.harnesses[name].refuse(members, self.direction, self.target, self.chunk)
            if refused is None:
                return name, None
            why[name] = refused
        return "", next(iter(why.values())) if len(why) == 1 else "; ".join(f"{name}: {text}" for name, text in why.items())

    def _split_side(self, chain: Sequence[str]) -> str | None:
        """Return the reason where an edge into an optional input has one end only in `chain`."""
        for e in self.graph.side:
            if (e.src in chain) is not (e.dst in chain):
                return f"{e.src}.{e.src_port} feeds {e.dst}.{e.dst_port}: one kernel runs both stages, or neither"
        return None

    def _side_reasons(self, steps: Sequence[Step], reasons: dict[tuple[str, str], str]) -> None:
        """Add why the ends of an edge into an optional input do not run in one kernel, where no main edge says so already."""
        for e in self.graph.side:
            if (e.src, e.dst) in reasons or any(s.kind == "fused" and {e.src, e.dst} <= set(s.nodes) for s in steps):
                continue
            why = "the numpy target is the reference and runs no kernels"
            if self.target is not None:
                why = "the stages between them did not fuse" if self.fusion != "off" else "fusion is off"
            reasons[e.src, e.dst] = f"{e.src}.{e.src_port} feeds {e.dst}.{e.dst_port}; {why}, so both run as NumPy"

    def _alone(self, node: str) -> Step:
        if self._refusal([node]) is None:
            return Step((node,), "kernel", self._harness([node]))
        return Step((node,), "kernel" if self._brings_kernel(node) else "numpy")

    def _brings_kernel(self, node: str) -> bool:
        assert self.target is not None
        return self.graph.nodes[node].staged_kernel(self.direction, self.target.dialect, self.types[node]) is not None

    def _why_apart(self, path: Sequence[str], start: int, cut: int, groups: Mapping[int, int]) -> str:
        if self.fusion == "off":
            return "fusion is off"
        pair = self._refusal(self._whole(path, cut))
        if pair is not None:
            return pair
        end = groups.get(cut, cut + 1)
        return self._refusal(path[start:end]) or "fusing them does not pay: no launch would be saved"

    def _whole(self, path: Sequence[str], cut: int) -> Sequence[str]:
        """Return the neighbours at `cut` with the stages without which they could not run as one kernel."""
        first, last = cut - 1, cut
        ends = [(e.src, e.dst) for e in self.graph.side] + [(n, tail[-1]) for n, tail in self.graph.tails.items()]
        inner = [sorted((path.index(a), path.index(b))) for a, b in ends if a in path and b in path]
        while True:
            wider = [(a, b) for a, b in inner if first <= a <= last or first <= b <= last]
            before = first, last
            first, last = min([first, *(a for a, _ in wider)]), max([last, *(b for _, b in wider)])
            if (first, last) == before:
                return path[first : last + 1]

    def _reference_steps(self, path: Sequence[str], reasons: dict[tuple[str, str], str]) -> list[Step]:
        """Steps of the NumPy reference: neighbours whose roles are local share a walk over the stream."""
        steps: list[Step] = []
        local: list[str] = []
        for node in path:
            spec = declared(self.graph.nodes[node], self.direction)[0]
            fits = spec.fusable and spec.access is not FusionAccess.LAYOUT and self.fusion != "off"
            waits = any(e.dst == node and e.src not in local for e in self.graph.side)  # a step starts when its head can
            if fits and local and not waits:
                local.append(node)
                continue
            if local:
                steps.append(Step(tuple(local), "numpy"))
            local = [node] if fits else []
            if not fits:
                steps.append(Step((node,), "numpy"))
        if local:
            steps.append(Step(tuple(local), "numpy"))
        for a, b in itertools.pairwise(path):
            reasons[a, b] = "the numpy target is the reference and runs no kernels"
        return steps

    # -- liveness ------------------------------------------------------------------------------------------

    def _buffers(self, steps: Sequence[Step], inside: set[NodePort]) -> tuple[Buffer, ...]:
        """Return the lifetime of every port that is materialized; a group is one point in time."""
        at = {n: i for i, s in enumerate(steps) for n in s.nodes}
        last = len(steps) - 1
        ports: list[tuple[NodePort, PortType]] = [((INPUT, INPUT_PORT), PortType(next(iter(self._input_types())).dtype))]
        for node in self.graph.nodes:
            ports += [((node, p), self.types[node][p]) for p in self.graph.nodes[node].outputs]
        buffers = []
        for port, kind in ports:
            if port in inside:
                continue
            readers = [at[n] for n, _ in self.graph.consumers.get(port, ())]
            source = at.get(port[0])
            if self.direction == "forward":
                born = 0 if source is None else source
                dies = last if source is None else max(readers, default=last)  # the input stays the caller's
            else:
                born = min(readers, default=0)
                dies = last if source is None else source
            buffers.append(Buffer(port, kind, born, dies))
            if self.direction == "inverse":
                buffers += [Buffer(port, kind, step, step, again=True) for step in sorted(set(readers))[1:]]
        return tuple(buffers)

    def _input_types(self) -> Iterable[PortType]:
        for node, port in self.graph.consumers[INPUT, INPUT_PORT]:
            yield self.types[node][port]

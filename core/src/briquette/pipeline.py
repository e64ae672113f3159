"""`Pipeline`: the object users build, load from TOML, plan and run."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from . import discovery, pipeline_toml
from ._forklock import ForkLock
from ._names import shown, unfit
from .alternatives import NO_BOUND, Alternative, check_missing, check_served, chosen, mode_of
from .errors import BriquetteError, LookupFailed, MissingPack, PipelineError, UnsupportedInput, UsageError
from .executor import Executable
from .graph import Edge, Graph, side_edges
from .plan import Plan
from .planner import make_plan
from .ports import CARRIED_AS, carried, numpy_dtype
from .record import Bound
from .selection import allocation_strategy, choose_target, fusion_mode, thread_count
from .stage import Stage

if TYPE_CHECKING:
    from .tuning import TuneReport

_PLANS_KEPT: Final = 32
#: types of options that can be compared with no surprise
_WORDS: Final = (str, type(None))


class Pipeline:
    """A DAG of stages with an optional error bound.

    Built by `add` and `connect`, by `chain`, or from TOML; read-only from the first plan or run on, and then safe
    to share between threads.

    Parameters
    ----------
    title, description : str
        Shown in listings.
    bound : Bound, optional
        Used where a call gives none.
    """

    def __init__(self, title: str = "", description: str = "", bound: Bound | None = None) -> None:
        if bound is not None and not isinstance(bound, Bound):
            raise UsageError(f"bound={shown(bound)} is a {type(bound).__name__}; give a Bound, such as Bound(1e-3, 'rel')")
        self.title = title
        self.description = description
        self.bound = bound
        self._nodes: dict[str, Stage] = {}
        self._alternatives: dict[str, tuple[Alternative, ...]] = {}
        self._variants: OrderedDict[tuple[tuple[tuple[str, int], ...], str, str], Pipeline | None] = OrderedDict()
        self._edges: list[Edge] | None = None
        self._graph: Graph | None = None
        self._executables: OrderedDict[tuple[str, str, str, int, str], Executable] = OrderedDict()
        self._recent: tuple[discovery.Registry, tuple[Any, ...], Executable] | None = None
        self._recent_variant: tuple[tuple[Any, ...], Pipeline | None] | None = None
        self._lock = ForkLock()

    # -- building ------------------------------------------------------------------------------------------

    def add(self, stage: Stage | str, node: str = "") -> str:
        """Add a stage; return its node name (default: the stage's name, numbered when it repeats).

        Parameters
        ----------
        stage : Stage or str
            A name, as ``briquette stages`` lists them, stands for that stage with its default parameters.
        node : str, optional

        Raises
        ------
        PipelineError
            For what is no stage, a node name that is taken, and a pipeline that has been planned or run.
        LookupFailed
            Nothing registers the name.
        """
        self._open()
        if isinstance(stage, str):
            stage = discovery.registry().stage_class(stage).from_parameters({})
        if not isinstance(stage, Stage):
            raise PipelineError(f"{stage!r} is no stage; give an object of a stage's class, or a stage's name")
        if not isinstance(node, str):
            raise PipelineError(f"node name {shown(node)} is a {type(node).__name__}; give a str")
        name = node or pipeline_toml.free_name(stage.name, self._nodes)
        if name in self._nodes or "." in name:
            raise PipelineError(f"node name {name!r} is taken, or has a dot in it")
        problem = unfit(name)
        if problem:
            raise PipelineError(f"node name {problem}; archives hold no such name")
        self._nodes[name] = stage
        return name

    def connect(self, source: str, to: str) -> None:
        """Connect an output to an input, each written ``node.port``; `source` may be ``"in"``, the pipeline's input."""
        self._open()
        src, src_port = ("", "in") if source == "in" else pipeline_toml.split_port(source)
        dst, dst_port = pipeline_toml.split_port(to)
        self._edges = [*(self._edges or []), Edge(src, src_port, dst, dst_port)]

    def when(
        self,
        node: str,
        stage: Stage | str | None,
        *,
        modes: Sequence[str] = (),
        dtypes: Sequence[str] = (),
    ) -> None:
        """Have `stage` stand in for a node's stage in some runs; of several that apply, the first one given does.

        Parameters
        ----------
        node : str
            As `add` returned it.
        stage : Stage, str or None
            A name stands for that stage with its default parameters; None: the chain does without the node.
        modes : sequence of {"abs", "rel", "pwrel", "none"}, optional
            Modes of the bound in which it stands in ("none": there is no bound); all where not given.
        dtypes : sequence of str, optional
            NumPy names of the source's dtypes for which it does; all where not given.

        Raises
        ------
        PipelineError
            For an unknown node, mode or dtype, and for a pipeline that has been planned or run.
        """
        self._open()
        if node not in self._nodes:
            raise PipelineError(f"there is no node {node!r}; nodes: {', '.join(self._nodes)}")
        if isinstance(stage, Stage):
            given = Alternative(tuple(modes), tuple(dtypes), discovery.registry().qualified(type(stage)), stage.parameters())
        else:
            given = Alternative(tuple(modes), tuple(dtypes), stage or "")
        self._alternatives[node] = (*self._alternatives.get(node, ()), given)

    def variant(self, dtype: str, bound: Bound | None, missing: tuple[float, ...] = ()) -> Pipeline:
        """Return the pipeline that runs for data of `dtype` under `bound`: itself, unless other stages stand in.

        First alternatives take the places they apply to, then stages that stand in for the type (`Stage.stand_in`), then
        what runs takes the missing values.

        Parameters
        ----------
        dtype : str
        bound : Bound or None
            Counts as None for types that come back as they are (bool).
        missing : tuple of float, optional
            Finite values to be taken for missing ones.

        Raises
        ------
        UsageError
            Where a stage does not serve the bound's mode, or none takes missing values; lists the presets that do.
        PipelineError
            Where an alternative or what stands in does not fit the pipeline.
        """
        mode, kind = mode_of(None if dtype in CARRIED_AS else bound), carried(dtype)
        asked, recent = (discovery.registry(), mode, dtype, missing), self._recent_variant
        if recent is not None and recent[0] == asked:
            return recent[1] or self
        picked = chosen(self._alternatives, mode, kind)
        key = tuple((node, self._alternatives[node].index(a)) for node, a in picked.items()), kind, repr(missing)
        with self._lock.current:
            known, found = key in self._variants, self._variants.get(key)
        if not known:
            made = self._suited(picked, kind)
            if missing:
                made = made._taking(missing) or _untaken(dtype, mode, kind, missing)
            found = None if made is self else made  # a pipeline that held itself would be freed late
            with self._lock.current:
                found = self._variants.setdefault(key, found)
                while len(self._variants) > _PLANS_KEPT:
                    self._variants.popitem(last=False)
        pipe = self if found is None else found
        if mode != NO_BOUND and not pipe._serves(mode):
            check_served(pipe._nodes.items(), mode, dtype, _presets_that(lambda p: p._suited_for(mode, kind)._serves(mode, kind)))
        self._recent_variant = None if missing else (asked, found)
        return pipe

    def _suited_for(self, mode: str, kind: str) -> Pipeline:
        return self._suited(chosen(self._alternatives, mode, kind), kind)

    def _suited(self, picked: Mapping[str, Alternative], kind: str) -> Pipeline:
        """Return the pipeline in which alternatives, and stages that suit the element type, stand in."""
        pipe = self._with(picked) if picked else self
        graph = pipe.graph.suited(kind)
        return pipe if graph is pipe.graph else Pipeline.of(graph, self.bound, self.title, self.description)

    def _serves(self, mode: str, kind: str = "") -> bool:
        """Whether its stages serve the mode, and take the element type where one is given."""
        if kind:
            _ = self.graph.types(kind)
        return all(mode in stage.bound_modes for stage in self._nodes.values() if stage.needs_bound or stage.takes_bound)

    def _taking(self, missing: tuple[float, ...]) -> Pipeline | None:
        """Return the pipeline in which every stage that can takes these values for missing; None where none does."""
        made = {node: stage.with_missing_values(missing) for node, stage in self._nodes.items()}
        if all(stage is None for stage in made.values()):
            return None
        graph = Graph.build({node: made[node] or stage for node, stage in self._nodes.items()}, self.graph.edges)
        return Pipeline.of(graph, self.bound, self.title, self.description)

    @property
    def missing_values(self) -> tuple[float, ...]:
        """The finite values that its stages take for missing ones."""
        return tuple(dict.fromkeys(value for stage in self._nodes.values() for value in stage.missing_values()))

    def _with(self, picked: Mapping[str, Alternative]) -> Pipeline:
        """Return the pipeline in which alternatives stand in; one without a name of its own takes its stage's."""
        registry = discovery.registry()
        pipe = Pipeline(self.title, self.description, self.bound)
        named: dict[str, str] = {}
        for node, stage in self._nodes.items():
            other = picked.get(node)
            if other is None:
                named[node] = pipe.add(stage, node)
            elif other.stage:
                made = registry.stage_class(other.stage).from_parameters(other.params)
                taken = {*self._nodes, *pipe._nodes}
                own = node != pipeline_toml.free_name(stage.name, ())
                named[node] = pipe.add(made, node if own else pipeline_toml.free_name(made.name, taken - {node}))
            elif any(e.src == node for e in self._edges or ()):
                raise PipelineError(f"an alternative leaves node {node!r} out, which edges begin at; a chain would close the gap")
        if self._edges is not None:
            kept = [e for e in self._edges if e.dst in named or e.dst not in self._nodes]
            pipe._edges = [Edge(named.get(e.src, e.src), e.src_port, named.get(e.dst, e.dst), e.dst_port) for e in kept]
        _ = pipe.graph
        return pipe

    def _open(self) -> None:
        if self._graph is not None:
            raise PipelineError("this pipeline has been planned or run and cannot change any more; build another")

    @property
    def graph(self) -> Graph:
        """The validated DAG."""
        if self._graph is None:
            with self._lock.current:
                if self._graph is None:
                    self._graph = Graph.build(self._nodes, self._edges)
        return self._graph

    @staticmethod
    def of(graph: Graph, bound: Bound | None = None, title: str = "", description: str = "") -> Pipeline:
        """Return a pipeline that runs `graph`."""
        pipe = Pipeline(title, description, bound)
        pipe._nodes = dict(graph.nodes)
        pipe._edges = list(graph.edges)
        pipe._graph = graph
        return pipe

    # -- TOML ----------------------------------------------------------------------------------------------

    @staticmethod
    def from_spec(spec: pipeline_toml.PipelineSpec) -> Pipeline:
        pipe = Pipeline(spec.title, spec.description, spec.bound)
        registry = discovery.registry()
        for entry in spec.stages:
            pipe.add(registry.stage_class(entry.stage).from_parameters(entry.params), entry.node)
            if entry.when:
                pipe._alternatives[entry.node] = entry.when
        if spec.edges is not None:
            pipe._edges = [Edge(*e) for e in spec.edges]
        _ = pipe.graph
        return pipe

    @staticmethod
    def from_toml(source: str | os.PathLike[str]) -> Pipeline:
        """Load a pipeline from a TOML file (a path, or a string ending in ``.toml``) or from TOML text."""
        if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source and source.endswith(".toml")):
            path = os.fsdecode(source)
            try:
                text = Path(path).read_text(encoding="utf-8")
            except (OSError, ValueError) as exc:  # ValueError: not UTF-8, or a NUL in the path
                name = path if path.isprintable() else repr(path)
                raise UsageError(f"cannot read the pipeline {name}: {getattr(exc, 'strerror', None) or exc}") from exc
            return Pipeline.from_spec(pipeline_toml.loads(text, path))
        if not isinstance(source, str):
            raise UsageError(f"{shown(source)} is a {type(source).__name__}; give the path of a TOML file, or TOML text as a str")
        if source.strip() and not set("\n=[#") & set(source):
            raise UsageError(
                f"{source!r} is neither TOML text nor a name ending in .toml; give pathlib.Path({source!r}) for a file of "
                f"another name, and load a preset with Pipeline.from_preset"
            )
        return Pipeline.from_spec(pipeline_toml.loads(source))

    @staticmethod
    def from_preset(name: str) -> Pipeline:
        """Load the preset `name`."""
        if not isinstance(name, str):
            raise UsageError(f"{shown(name)} is a {type(name).__name__}; the name of a preset is a str")
        try:
            text = discovery.registry().preset(name)
        except LookupFailed:
            if "/" in name or os.sep in name or os.path.isfile(name):
                raise UsageError(f"{name!r} is no preset; the name of a pipeline's file must end in .toml") from None
            raise
        return Pipeline.from_spec(pipeline_toml.loads(text, f"preset {name}"))

    def to_toml(self) -> str:
        """Return TOML from which `from_toml` builds an equal pipeline."""
        registry = discovery.registry()
        stages = tuple(
            pipeline_toml.StageSpec(node, registry.qualified(type(stage)), stage.parameters(), self._alternatives.get(node, ()))
            for node, stage in self.graph.nodes.items()
        )
        beside = self.graph.beside_chain
        implied = beside is not None and set(beside) == set(side_edges(self.graph.nodes))
        edges = None if implied else tuple((e.src, e.src_port, e.dst, e.dst_port) for e in self.graph.edges)
        return pipeline_toml.dumps(pipeline_toml.PipelineSpec(stages, edges, self.bound, self.title, self.description))

    # -- planning and running ------------------------------------------------------------------------------

    def executable(
        self,
        dtype: str,
        target: str | None = None,
        fusion: str | None = None,
        chunk: int | None = None,
        allocation: str | None = None,
    ) -> Executable:
        """Return the plan for `dtype` with what runs it; the most recent ones are kept.

        `chunk`: of the archive at hand; default: the spans'. `allocation`: ``"minimal"`` or ``"preallocate"``, see `arena`.
        """
        # what was asked last is likely asked again, and looking all of it up takes longer than a kernel's launch
        asked = (dtype, target, fusion, chunk, allocation, os.environ.get("BRIQUETTE_FUSION"))
        plain = type(target) is str and type(fusion) in _WORDS and type(allocation) in _WORDS
        registry, recent = discovery.registry(), self._recent
        if plain and recent is not None and recent[0] is registry and recent[1] == asked:
            return recent[2]
        found = self._executable(dtype, target, fusion, chunk, allocation)
        if plain:
            self._recent = registry, asked, found
        return found

    def _executable(
        self, dtype: str, target: str | None, fusion: str | None, chunk: int | None, allocation: str | None
    ) -> Executable:
        chosen = choose_target(target)
        mode = fusion_mode(fusion)
        strategy = allocation_strategy(allocation)
        key = (dtype, chosen.name if chosen else "numpy", mode, chunk or self.graph.chunk_for(dtype), strategy)
        with self._lock.current:
            found = self._executables.get(key)
            if found is not None and found.target is chosen:
                self._executables.move_to_end(key)
                return found
        graph = self.graph
        harnesses = {h.name: h for h in discovery.registry().harnesses()} if chosen else {}
        plan = make_plan(graph, dtype, chosen, harnesses.values(), mode, chunk)
        found = Executable(plan, chosen, harnesses, strategy)
        discovery.hooks().plan_made(plan=plan)
        with self._lock.current:
            self._executables[key] = found
            while len(self._executables) > _PLANS_KEPT:
                self._executables.popitem(last=False)
        return found

    def plan(self, x: Any, target: str | None = None, fusion: str | None = None, mode: str | None = None) -> Plan:
        """Return how this pipeline runs for an array, or for a dtype, under a bound of `mode` (default: as `compile`)."""
        dtype = x.dtype if hasattr(x, "dtype") and not isinstance(x, type) else x  # numpy.float32 has one, a descriptor
        name = _dtype_name(dtype)
        return self._ready(name, mode).executable(carried(name), target, fusion).plan

    def compile(self, dtype: Any, target: str | None = None, fusion: str | None = None, mode: str | None = None) -> None:
        """Compile what runs on arrays of `dtype`, into memory and the disk cache.

        `mode` is that of the bound to come; default: that of the pipeline's own, else what its stages without alternatives serve.
        """
        name = _dtype_name(dtype)
        self._ready(name, mode).executable(carried(name), target, fusion).compile()

    def _ready(self, dtype: str, mode: str | None) -> Pipeline:
        if mode is not None:
            return self.variant(dtype, None if mode == NO_BOUND else Bound(0.5, mode))
        if self.bound is not None:
            return self.variant(dtype, self.bound)
        needing = [stage.bound_modes for stage in self._nodes.values() if stage.needs_bound]
        return self.variant(dtype, Bound(0.5, needing[0][0]) if needing and needing[0] else None)

    def tune(
        self,
        x: Any,
        eb: float | None = None,
        mode: str = "abs",
        *,
        target: str | None = None,
        fusion: str | None = None,
        threads: int | None = None,
    ) -> TuneReport:
        """Measure on `x` which of the geometries its harnesses offer runs fastest here, and remember it; see `briquette.tuning`.

        Archives do not change. Later runs of the same plan on the same kind of processor or device use the choice, in other
        processes too. Geometries that were not compiled before are.
        """
        from .request import asked
        from .tuning import tune

        pipe, bound, source, target = asked(self, eb, mode, x, target)
        run = pipe.executable(carried(source.dtype), target, fusion)
        return tune(run, source.flat, bound, thread_count(run.target, threads), shape=source.shape)

    def compress(self, x: Any, eb: float | None = None, mode: str = "abs", **options: Any) -> bytes | memoryview:
        """Compress `x`; see `briquette.compress`, whose keyword arguments this takes."""
        from .api import compress

        return compress(x, eb, mode, pipeline=self, **options)

    def run(self, x: Any, eb: float | None = None, mode: str = "abs", **options: Any) -> Any:
        """Compress `x` and return the archive with its record and plan; see `briquette.compress_run`."""
        from .api import compress_run

        return compress_run(x, eb, mode, pipeline=self, **options)

    def capture(self, x: Any, eb: float | None = None, mode: str = "abs", *, stream: Any = None) -> Any:
        """Capture compression and decompression of a device array for replay; see `briquette.on_device.Captured`."""
        from .on_device import capture

        return capture(self, x, eb, mode, stream=stream)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pipeline):
            return NotImplemented
        return (
            dict(self.graph.nodes) == dict(other.graph.nodes)
            and set(self.graph.edges) == set(other.graph.edges)
            and self.bound == other.bound
            and self._alternatives == other._alternatives
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (dict(self._nodes), self._edges, self.bound, self.title, self.description, dict(self._alternatives)))

    def __repr__(self) -> str:
        return f"Pipeline({self.title + ': ' if self.title else ''}{' + '.join(self._nodes)})"


def _untaken(dtype: str, mode: str, kind: str, missing: tuple[float, ...]) -> NoReturn:
    check_missing(dtype, _presets_that(lambda p: p._suited_for(mode, kind)._taking(missing) is not None))


def _dtype_name(dtype: Any) -> str:
    try:
        if isinstance(dtype, str) and dtype == "bfloat16":
            numpy_dtype(dtype)  # makes the name known to NumPy
        return str(np.dtype(dtype).newbyteorder("=").name)
    except MissingPack:
        raise
    except Exception as exc:  # whatever NumPy, or a foreign object that it asks, makes of it
        raise UnsupportedInput(f"{shown(dtype)} is no dtype of NumPy; give one such as 'float32', or an array") from exc


def _rebuild(
    nodes: dict[str, Stage],
    edges: list[Edge] | None,
    bound: Bound | None,
    title: str,
    description: str,
    alternatives: dict[str, tuple[Alternative, ...]],
) -> Pipeline:
    pipe = Pipeline(title, description, bound)
    pipe._nodes, pipe._edges, pipe._alternatives = nodes, edges, alternatives
    return pipe


def _presets_that(suit: Callable[[Pipeline], bool]) -> list[str]:
    """Return the presets that suit; those that cannot be loaded are left out."""
    found = []
    for name in discovery.registry().presets():
        try:
            if suit(Pipeline.from_preset(name)):
                found.append(name)
        except BriquetteError:
            continue
    return found


def chain(*stages: Stage | str, bound: Bound | None = None, sides: bool = True) -> Pipeline:
    """Return the pipeline that connects the main ports of `stages` one after another.

    A string stands for the stage registered under that name, with its default parameters; see `Pipeline.add`.
    Where a stage has an optional input that takes the side port of that name of a stage before it (the modes of a selector's
    tiles, say), the two are connected; with ``sides=False`` each side port becomes a segment of the archive instead.
    """
    pipe = Pipeline(bound=bound)
    for stage in stages:
        pipe.add(stage)
    if not sides:
        pipe._edges = []
    _ = pipe.graph
    return pipe

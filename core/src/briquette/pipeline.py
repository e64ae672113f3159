"""`Pipeline`: the object users build, load from TOML, plan and run."""

from __future__ import annotations

import os
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import discovery, pipeline_toml
from ._forklock import ForkLock
from ._names import shown, unfit
from .errors import LookupFailed, PipelineError, UnsupportedInput, UsageError
from .executor import Executable
from .graph import Edge, Graph, side_edges
from .plan import Plan
from .planner import make_plan
from .record import Bound
from .selection import allocation_strategy, choose_target, fusion_mode, placed, thread_count
from .stage import Stage

if TYPE_CHECKING:
    from .tuning import TuneReport

_PLANS_KEPT: Final = 32
#: types of options that can be compared with no surprise
_PLAIN: Final = frozenset({str, int, type(None)})


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
        self._edges: list[Edge] | None = None
        self._graph: Graph | None = None
        self._executables: OrderedDict[tuple[str, str, str, int, str], Executable] = OrderedDict()
        self._recent: tuple[discovery.Registry, tuple[Any, ...], Executable] | None = None
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
    def of(graph: Graph, bound: Bound | None = None) -> Pipeline:
        """Return a pipeline that runs `graph`."""
        pipe = Pipeline(bound=bound)
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
            pipeline_toml.StageSpec(node, registry.qualified(type(stage)), stage.parameters())
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

        `chunk` is the archive chunk that an archive at hand states; default: what the stages' spans give. `allocation` is
        ``"minimal"`` (the default) or ``"preallocate"``, see `briquette.arena`.
        """
        # what was asked last is likely asked again, and looking all of it up takes longer than a kernel's launch
        asked = (dtype, target, fusion, chunk, allocation, os.environ.get("BRIQUETTE_FUSION"))
        plain = target is not None and all(type(word) in _PLAIN for word in asked)
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
        key = (dtype, chosen.name if chosen else "numpy", mode, chunk or self.graph.chunk, strategy)
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

    def plan(self, x: Any, target: str | None = None, fusion: str | None = None) -> Plan:
        """Return how this pipeline runs for an array, or for a dtype."""
        dtype = x.dtype if hasattr(x, "dtype") and not isinstance(x, type) else x  # numpy.float32 has one, a descriptor
        return self.executable(_dtype_name(dtype), target, fusion).plan

    def compile(self, dtype: Any, target: str | None = None, fusion: str | None = None) -> None:
        """Compile what runs on arrays of `dtype`, into memory and the disk cache."""
        self.executable(_dtype_name(dtype), target, fusion).compile()

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
        from .tuning import tune

        source, target = placed(x, target)
        run = self.executable(source.dtype, target, fusion)
        bound = Bound(eb, mode) if eb is not None else self.bound
        return tune(run, source.flat, bound, thread_count(run.target, threads))

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
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (dict(self._nodes), self._edges, self.bound, self.title, self.description))

    def __repr__(self) -> str:
        return f"Pipeline({self.title + ': ' if self.title else ''}{' + '.join(self._nodes)})"


def _dtype_name(dtype: Any) -> str:
    try:
        return str(np.dtype(dtype).newbyteorder("=").name)
    except Exception as exc:  # whatever NumPy, or a foreign object that it asks, makes of it
        raise UnsupportedInput(f"{shown(dtype)} is no dtype of NumPy; give one such as 'float32', or an array") from exc


def _rebuild(nodes: dict[str, Stage], edges: list[Edge] | None, bound: Bound | None, title: str, description: str) -> Pipeline:
    pipe = Pipeline(title, description, bound)
    pipe._nodes, pipe._edges = nodes, edges
    return pipe


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


def as_pipeline(pipeline: str | os.PathLike[str] | Pipeline) -> Pipeline:
    """Return a pipeline from itself, a preset's name, or the path of a TOML file."""
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, os.PathLike):
        return Pipeline.from_toml(pipeline)
    if not isinstance(pipeline, str):
        raise UsageError(
            f"pipeline={shown(pipeline)} is a {type(pipeline).__name__}; give a preset's name, a TOML file's path or a Pipeline"
        )
    return Pipeline.from_toml(Path(pipeline)) if pipeline.endswith(".toml") else _preset(discovery.registry(), pipeline)


@lru_cache(maxsize=64)
def _preset(_registry: discovery.Registry, name: str) -> Pipeline:
    return Pipeline.from_preset(name)

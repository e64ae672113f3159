"""Between pipelines and archive headers: what is written of a pipeline, and the pipeline a header describes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from . import discovery
from ._folders import core_version
from .archive import Edge as ArchivedEdge
from .archive import Header, StageEntry, cbor
from .archive.layout import RAW_CHUNK, stream_table_bytes
from .arrays import Source, as_source
from .errors import ArchiveError, ArchiveVersionError, BriquetteError, PackError
from .graph import Edge, Graph
from .params import Scalar
from .pipeline import Pipeline
from .ports import carried
from .record import Bound

#: bytes of an archive beyond those of its data, at most, less the checksums of large arrays (see `max_archive_bytes`)
OVERHEAD = 1024


def header_for(pipe: Pipeline, source: Source, bound: Bound | None, state: Mapping[str, Mapping[str, Scalar]]) -> Header:
    """Return the header of an archive of `source` made by `pipe`."""
    stages, edges = _written(discovery.registry(), pipe.graph)
    chunk = pipe.graph.chunk_for(carried(source.dtype))
    return Header(core_version(), source.dtype, source.byteorder, source.shape, chunk, bound, stages, edges, state)


@lru_cache(maxsize=64)
def _written(registry: discovery.Registry, graph: Graph) -> tuple[tuple[StageEntry, ...], tuple[ArchivedEdge, ...] | None]:
    stages = []
    for node, stage in graph.nodes.items():
        origin = registry.stage_origin(type(stage))
        stages.append(StageEntry(node, stage.name, origin.distribution, stage.format_version, origin.version, stage.parameters()))
    beside = graph.beside_chain  # a linear chain is not written out
    edges = graph.edges if beside is None else beside
    return tuple(stages), tuple(ArchivedEdge(e.src, e.src_port, e.dst, e.dst_port) for e in edges) or None


def max_archive_bytes(x: Any) -> int:
    """Return how many bytes an archive of `x` can have at most: its data, 1 KiB, and 8 for each 524,288 elements."""
    source = as_source(x)
    return source.nbytes + OVERHEAD + stream_table_bytes(source.flat.size, RAW_CHUNK)


def pipeline_of(header: Header) -> Pipeline:
    """Return the pipeline a header describes; the most recent ones are kept with their plans.

    Raises
    ------
    MissingPack, ArchiveVersionError, PackError
        Where a stage is not to be had.
    ArchiveError
        Where stages, parameters and edges make no pipeline.
    """
    # parameters as their encoding, in which 1, 1.0 and true differ, and 0.0 from -0.0: as values of a key they would not
    key = tuple((s.node, s.qualified, s.format_version, s.pack_version, cbor.dumps(s.parameters)) for s in header.stages)
    return _pipeline(discovery.registry(), key, header.edges)


StageKey = tuple[str, str, int, str, bytes]


@lru_cache(maxsize=64)
def _pipeline(registry: discovery.Registry, key: tuple[StageKey, ...], edges: tuple[ArchivedEdge, ...] | None) -> Pipeline:
    nodes = {}
    for node, qualified, format_version, pack_version, parameters in key:
        cls = registry.resolve_archived(qualified, format_version, pack_version)
        try:
            nodes[node] = cls.from_parameters(cast("dict[str, Scalar]", cbor.loads(parameters)))
        except (PackError, ArchiveVersionError):
            raise
        except (BriquetteError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as exc:
            raise ArchiveError(f"the archive's parameters of stage {qualified} are impossible: {exc}") from exc
    try:
        graph = Graph.build(nodes, [Edge(e.src_node, e.src_port, e.dst_node, e.dst_port) for e in edges or ()])
    except BriquetteError as exc:
        raise ArchiveError(f"the archive's stages make no pipeline: {exc}") from exc
    return Pipeline.of(graph)

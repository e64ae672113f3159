"""Descriptions of pipelines as TOML text, in both directions.

::

    title = "fast"
    [bound]                        # optional
    eb = 1e-3
    mode = "rel"
    [[stage]]
    use = "my-stage"               # or "distribution:my-stage"
    node = "first"                 # optional: the stage's name by default, then with -2, -3, ...
    [stage.params]
    order = 2
    [[stage.when]]                 # optional: what stands in for the stage in runs of some kind; the first that applies
    modes = ["pwrel"]              # of the bound ("none": without one); all where left out
    dtypes = ["float32"]           # of the source; all where left out
    use = "other-stage"            # left out: the chain does without the stage
    [stage.when.params]
    order = 1
    [[edge]]                       # optional: without any, the stages form a chain
    from = "first.out"             # node.port; "in" alone is the pipeline's own input
    to = "second.in"

A description is only text made regular: whether its stages exist and fit together is for the pipeline to check.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from . import _toml
from ._names import shown, unfit
from .alternatives import Alternative
from .errors import PipelineError, UsageError
from .params import Scalar
from .record import Bound

Edge = tuple[str, str, str, str]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_STAGE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?:)?[a-z0-9]+(-[a-z0-9]+)*")
_ESCAPES: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
#: the pipeline's own input, as the source of an edge
_INPUT: Final = "in"


@dataclass(frozen=True)
class StageSpec:
    """One stage of a description.

    Parameters
    ----------
    node : str
        Name within the pipeline: not empty, without dots.
    stage : str
        Name of the stage, or ``distribution:name``.
    params : mapping
        Parameters by name: bools, ints, floats and strings.
    when : tuple of Alternative
        What stands in for it, see `briquette.alternatives`.
    """

    node: str
    stage: str
    params: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    when: tuple[Alternative, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", dict(self.params))
        object.__setattr__(self, "when", tuple(self.when))
        for name in (self.stage, *(a.stage for a in self.when if a.stage)):
            if not _STAGE.fullmatch(name):
                raise PipelineError(
                    f"{name!r} is no name of a stage; write lower-case letters, digits and hyphens, or distribution:name"
                )
        if not self.node or "." in self.node:
            raise PipelineError(f"node name {self.node!r} of stage {self.stage!r} must not be empty nor contain a dot")
        problem = unfit(self.node)
        if problem:
            raise PipelineError(f"node name {problem}; archives hold no such name")


@dataclass(frozen=True)
class PipelineSpec:
    """A pipeline as written down.

    Parameters
    ----------
    stages : tuple of StageSpec
        At least one, no two with the same node.
    edges : tuple of (source node, source port, destination node, destination port), or None
        None (or no edge) for a linear chain. The source of the pipeline's own input is node ``""``, port ``in``.
    bound : Bound or None
    title, description : str

    Raises
    ------
    PipelineError
        For a repeated node, or an edge that names none of the nodes.
    """

    stages: tuple[StageSpec, ...]
    edges: tuple[Edge, ...] | None = None
    bound: Bound | None = None
    title: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        object.__setattr__(self, "edges", tuple(self.edges) if self.edges else None)
        if not self.stages:
            raise PipelineError("a pipeline needs at least one stage; add a [[stage]] table")
        nodes = [stage.node for stage in self.stages]
        for node in nodes:
            if nodes.count(node) > 1:
                raise PipelineError(f"two stages have the node name {node!r}; give each its own")
        for source, source_port, target, target_port in self.edges or ():
            unknown = [n for n in (source, target) if n not in nodes and (n or n is target)]
            if unknown or not source_port or not target_port or (not source and source_port != _INPUT):
                raise PipelineError(
                    f"edge from {_end(source, source_port)!r} to {_end(target, target_port)!r}: "
                    + (f"there is no node {unknown[0]!r}; nodes: {', '.join(nodes)}" if unknown else "each end needs a port")
                )


def loads(text: str, source: str = "pipeline") -> PipelineSpec:
    """Return the description that a TOML text holds.

    Parameters
    ----------
    text : str
    source : str
        What messages call the text: a file name, or a preset's.

    Raises
    ------
    PipelineError
        For text that is not TOML (names line and column), unknown or missing keys and values of the wrong type (names
        the table).
    """
    try:
        top = _toml.loads(text.removeprefix("\ufeff"))
    except _toml.TOMLDecodeError as exc:
        raise PipelineError(f"{source} is not valid TOML: {exc}") from exc
    _known(top, ("title", "description", "bound", "stage", "edge"), f"{source}, top level")
    stages = _stages(_tables(top, "stage", source), source)
    edges = [_edge(table, f"{source}, [[edge]] {i}") for i, table in enumerate(_tables(top, "edge", source), 1)]
    title, description = (_string(top, key, f"{source}, top level", "") for key in ("title", "description"))
    bound = _bound(top["bound"], f"{source}, [bound]") if "bound" in top else None
    try:
        return PipelineSpec(stages, tuple(edges) or None, bound, title, description)
    except PipelineError as exc:
        raise PipelineError(f"{source}: {exc}") from exc


def _stages(tables: Sequence[Mapping[str, Any]], source: str) -> tuple[StageSpec, ...]:
    places = [f"{source}, [[stage]] {i}" for i in range(1, len(tables) + 1)]
    for table, where in zip(tables, places, strict=True):
        _known(table, ("use", "node", "params", "when"), where)
    uses = [_string(table, "use", where) for table, where in zip(tables, places, strict=True)]
    nodes = [_string(table, "node", where, None) for table, where in zip(tables, places, strict=True)]
    taken = {node for node in nodes if node is not None}
    out = []
    for table, where, use, node in zip(tables, places, uses, nodes, strict=True):
        params = _params(table, f"{where} ({use})", "[stage.params]")
        if node is None:
            node = free_name(use, taken)
            taken.add(node)
        when = table.get("when", [])
        if not isinstance(when, list) or not all(isinstance(each, dict) for each in when):
            raise PipelineError(f"{where} ({use}): 'when' is not a list of tables; write [[stage.when]]")
        alternatives = [_alternative(each, f"{where} ({use}), [[stage.when]] {i}") for i, each in enumerate(when, 1)]
        try:
            out.append(StageSpec(node, use, params, tuple(alternatives)))
        except PipelineError as exc:
            raise PipelineError(f"{where}: {exc}") from exc
    return tuple(out)


def _params(table: Mapping[str, Any], where: str, header: str) -> dict[str, Any]:
    params = table.get("params", {})
    if not isinstance(params, dict):
        raise PipelineError(f"{where}: params is {params!r}, not a table; write {header}")
    for key, value in params.items():
        if not isinstance(value, (bool, int, float, str)):
            what = f"{key} = {value!r} is a {type(value).__name__}"
            raise PipelineError(f"{where}, params: {what}; parameters are bools, numbers or strings")
    return params


def _alternative(table: Mapping[str, Any], where: str) -> Alternative:
    _known(table, ("modes", "dtypes", "use", "params"), where)
    words = {}
    for key in ("modes", "dtypes"):
        words[key] = table.get(key, [])
        if not isinstance(words[key], list) or not all(isinstance(word, str) for word in words[key]):
            raise PipelineError(f"{where}: {key} = {words[key]!r} is not a list of strings")
    params = _params(table, where, "[stage.when.params]")
    try:
        return Alternative(tuple(words["modes"]), tuple(words["dtypes"]), _string(table, "use", where, ""), params)
    except PipelineError as exc:
        raise PipelineError(f"{where}: {exc}") from exc


def free_name(stage: str, taken: Iterable[str]) -> str:
    """Return the name a stage's node gets where none is given: the stage's, with ``-2``, ``-3``, ... if that is taken."""
    base, used, i = stage.rpartition(":")[2], set(taken), 1
    node = base
    while node in used:
        i += 1
        node = f"{base}-{i}"
    return node


def split_port(text: str) -> tuple[str, str]:
    """Return node and port of ``"node.port"``; raise `PipelineError` where it has another form."""
    if not isinstance(text, str):
        raise PipelineError(f"{shown(text)} is a {type(text).__name__}; give a str of the form node.port")
    node, dot, port = text.partition(".")
    if not (node and dot and port):
        raise PipelineError(f"{text!r} is not of the form node.port")
    return node, port


def _edge(table: Mapping[str, Any], where: str) -> Edge:
    _known(table, ("from", "to"), where)
    start, end = _string(table, "from", where), _string(table, "to", where)
    try:
        source = ("", _INPUT) if start == _INPUT else split_port(start)
    except PipelineError as exc:
        raise PipelineError(f'{where}: from = {exc} (the pipeline\'s own input is "in")') from exc
    try:
        return *source, *split_port(end)
    except PipelineError as exc:
        raise PipelineError(f"{where}: to = {exc}") from exc


def _bound(table: object, where: str) -> Bound:
    if not isinstance(table, dict):
        raise PipelineError(f"{where}: {table!r} is not a table; write [bound]")
    _known(table, ("eb", "mode"), where)
    eb = table.get("eb")
    if isinstance(eb, bool) or not isinstance(eb, (int, float)):
        raise PipelineError(f"{where}: " + ("eb is missing" if eb is None else f"eb = {eb!r} is not a number"))
    try:
        return Bound(eb, _string(table, "mode", where, "abs"))
    except (UsageError, OverflowError) as exc:
        raise PipelineError(f"{where}: {exc}") from exc


def _tables(top: Mapping[str, Any], key: str, source: str) -> list[dict[str, Any]]:
    tables = top.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise PipelineError(f"{source}: {key!r} is not a list of tables; write [[{key}]]")
    return tables


def _known(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    unknown = [key for key in table if key not in keys]
    if unknown:
        raise PipelineError(f"{where}: unknown key {', '.join(map(repr, unknown))}; known: {', '.join(keys)}")


_REQUIRED: Final = object()


def _string(table: Mapping[str, Any], key: str, where: str, default: Any = _REQUIRED) -> Any:
    value = table.get(key, default)
    if value is _REQUIRED:
        raise PipelineError(f"{where}: the key {key!r} is missing")
    if value is not default and not isinstance(value, str):
        raise PipelineError(f"{where}: {key} = {value!r} is not a string")
    return value


def dumps(spec: PipelineSpec) -> str:
    """Return TOML text from which `loads` makes an equal description; floats keep every bit.

    Raises
    ------
    PipelineError
        For what TOML cannot hold: None, bytes, lone surrogates. The payload of a NaN is lost.
    """
    lines = [f"{key} = {_quoted(text)}" for key, text in (("title", spec.title), ("description", spec.description)) if text]
    if spec.bound is not None:
        lines += ["", "[bound]", f"eb = {_value(spec.bound.eb, 'eb')}", f"mode = {_quoted(spec.bound.mode)}"]
    for stage in spec.stages:
        lines += ["", "[[stage]]", f"use = {_quoted(stage.stage)}"]
        if stage.node != free_name(stage.stage, ()):
            lines.append(f"node = {_quoted(stage.node)}")
        if stage.params:
            lines.append("[stage.params]")
            lines += [f"{_key(k)} = {_value(v, f'parameter {k!r} of {stage.node!r}')}" for k, v in stage.params.items()]
        for other in stage.when:
            lines.append("[[stage.when]]")
            given = (("modes", other.modes), ("dtypes", other.dtypes))
            lines += [f"{key} = [{', '.join(map(_quoted, words))}]" for key, words in given if words]
            lines += [f"use = {_quoted(other.stage)}"] if other.stage else []
            if other.params:
                lines.append("[stage.when.params]")
                lines += [
                    f"{_key(k)} = {_value(v, f'parameter {k!r} in place of {stage.node!r}')}" for k, v in other.params.items()
                ]
    for source, source_port, target, target_port in spec.edges or ():
        ends = _quoted(_end(source, source_port)), _quoted(_end(target, target_port))
        lines += ["", "[[edge]]", f"from = {ends[0]}", f"to = {ends[1]}"]
    return "\n".join(lines).lstrip("\n") + "\n"


def _end(node: str, port: str) -> str:
    return f"{node}.{port}" if node else port


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _value(value: Scalar, what: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float.__repr__(value)  # repr is the shortest text that reads back the same
    if isinstance(value, str):
        return _quoted(str.__str__(value))  # a str enum's own __str__ would give the member's name
    kind = "null" if value is None else type(value).__name__
    raise PipelineError(f"{what} is {value!r}, and TOML has no {kind}; leave it out where that is the default")


def _quoted(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise PipelineError(f"{text!r} cannot be written as TOML, which is UTF-8: {exc}") from exc
    return '"' + "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " or c == "\x7f" else c) for c in text) + '"'

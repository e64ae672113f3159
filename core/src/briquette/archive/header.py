"""The archive header: pipeline graph, parameters, run state, dtype and shape. Nothing in it is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, cast

from .._names import unfit
from ..errors import ArchiveError, UsageError
from ..params import Scalar
from ..ports import CARRIED_AS, STREAM_DTYPES, itemsize
from ..record import Bound
from . import cbor
from .layout import DESCRIPTOR_BYTES, MAX_CHUNK, MAX_HEADER, RAW_CHUNK

#: dimensions of an array, at most
MAX_RANK: Final = 64
#: stages of a pipeline, at most: planning takes the cube of their number
MAX_STAGES: Final = 64
_REQUIRED = {"w": str, "d": str, "o": str, "s": list, "c": int, "t": dict, "g": bytes}
_KNOWN = frozenset(_REQUIRED) | {"b", "p", "e"}

State = Mapping[str, Mapping[str, Scalar]]


@dataclass(frozen=True)
class StageEntry:
    """One stage of the pipeline, as the archive names it.

    Attributes
    ----------
    node : str
        Its name in the pipeline; often the stage's own name.
    stage, pack : str
        The registered name, and the distribution that registers it.
    format_version : int
    pack_version : str
    parameters : mapping of str to scalar
    """

    node: str
    stage: str
    pack: str
    format_version: int
    pack_version: str
    parameters: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def qualified(self) -> str:
        """``pack:stage``."""
        return f"{self.pack}:{self.stage}"


class Edge(NamedTuple):
    """An edge of the pipeline. The pipeline's own input is node ``""``, port ``"in"``."""

    src_node: str
    src_port: str
    dst_node: str
    dst_port: str


@dataclass(frozen=True)
class Header:
    """What an archive says about its data and how they were coded.

    Attributes
    ----------
    core_version : str
        Version of briquette-core that wrote it.
    dtype : str
        NumPy name of the data's dtype, without byte order.
    byteorder : {"<", ">"}
        Of the source array; ``"<"`` for dtypes of one byte and bfloat16.
    shape : tuple of int
    chunk : int
        Elements of an archive chunk, 1 to 65,536.
    bound : Bound or None
        As the caller gave it.
    stages : tuple of StageEntry
        Empty exactly when the data are held raw.
    edges : tuple of Edge, or None
        None for a linear chain.
    state : mapping of node to mapping of name to scalar
        The run record's state.
    raw : bool
    """

    core_version: str
    dtype: str
    byteorder: str
    shape: tuple[int, ...]
    chunk: int
    bound: Bound | None = None
    stages: tuple[StageEntry, ...] = ()
    edges: tuple[Edge, ...] | None = None
    state: State = field(default_factory=dict)
    raw: bool = False

    @property
    def count(self) -> int:
        """Elements of the array."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return itemsize(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.count * self.itemsize

    def as_raw(self) -> Header:
        """Return the header of the archive that holds the same array raw."""
        return replace(self, chunk=RAW_CHUNK, stages=(), edges=None, state={}, raw=True)

    def encode(self, descriptors: bytes) -> bytes:
        """Return the CBOR header; its length depends on the length of `descriptors` only, not on their values.

        Raises
        ------
        UsageError
            For what a reader would refuse: more than 64 dimensions, an unknown dtype, a value that is no scalar.
        """
        return _encoded(self._fields(descriptors))

    def encode_for(self, segments: int) -> tuple[bytearray, int]:
        """Return the header of an archive of `segments` segments, and where in it their descriptors are to be put."""
        blank = bytes(DESCRIPTOR_BYTES * segments)
        fields = self._fields(blank)
        before = cbor.dumps({key: value for key, value in fields.items() if key < "g"})
        return bytearray(_encoded(fields)), len(before) + len(cbor.dumps("g")) + len(cbor.dumps(blank)) - len(blank)

    def _fields(self, descriptors: bytes) -> dict[str, object]:
        problem = _problem(self) or _not_scalar(self)
        if problem:
            raise UsageError(f"this array or pipeline cannot be archived: {problem}")
        fields: dict[str, object] = {
            "w": self.core_version,
            "d": self.dtype,
            "o": self.byteorder,
            "s": self.shape,
            "c": self.chunk,
            "b": None if self.bound is None else (self.bound.mode, self.bound.eb),
            "t": {node: values for node, values in self.state.items() if values},
            "g": descriptors,
        }
        if not self.raw:
            fields["p"] = [
                (None if s.node == s.stage else s.node, s.qualified, s.format_version, s.pack_version, s.parameters)
                for s in self.stages
            ]
        if self.edges is not None:
            fields["e"] = [(e.src_node, e.src_port, e.dst_node, e.dst_port) for e in self.edges]
        return fields

    @staticmethod
    def decode(encoded: bytes, *, raw: bool, newer: bool = False) -> tuple[Header, bytes]:
        """Return the header in `encoded` and the packed segment descriptors.

        Parameters
        ----------
        encoded : bytes
        raw : bool
            What the prologue's feature flag says.
        newer : bool
            Whether the archive has a newer minor version, whose additional keys are to be ignored.

        Raises
        ------
        ArchiveError
            For a key that is missing, unknown or of the wrong type, or a value out of range.
        """
        fields = cbor.loads(encoded)
        if not isinstance(fields, dict):
            raise ArchiveError(f"the header is a {type(fields).__name__}, not a map")
        for key, kind in _REQUIRED.items():
            if type(fields.get(key)) is not kind:
                raise ArchiveError(f"header field {key!r} is missing or no {kind.__name__}")
        unknown = fields.keys() - _KNOWN
        if "b" not in fields or (unknown and not newer):
            raise ArchiveError(f"the header lacks field 'b', or has unknown fields {sorted(unknown)}")
        if ("p" in fields) == raw:
            raise ArchiveError(f"the header {'names' if raw else 'does not name'} stages, against its feature flag (raw: {raw})")
        header = Header(
            cast(str, fields["w"]),
            cast(str, fields["d"]),
            cast(str, fields["o"]),
            tuple(cast("list[int]", fields["s"])),
            cast(int, fields["c"]),
            _bound(fields["b"]),
            () if raw else _stages(fields["p"]),
            _edges(fields["e"]) if "e" in fields else None,
            _state(cast("dict[str, cbor.Value]", fields["t"])),
            raw,
        )
        problem = _problem(header)
        if problem:
            raise ArchiveError(f"the archive's header is damaged: {problem}")
        packed = cast(bytes, fields["g"])
        if not packed or len(packed) % DESCRIPTOR_BYTES:
            raise ArchiveError(f"{len(packed)} bytes of segment descriptors are not a multiple of {DESCRIPTOR_BYTES} above 0")
        return header, packed


def _encoded(fields: dict[str, object]) -> bytes:
    encoded = cbor.dumps(fields)
    if len(encoded) > MAX_HEADER:
        raise UsageError(f"the header takes {len(encoded)} bytes, of at most {MAX_HEADER}; use smaller parameters")
    return encoded


def _not_scalar(h: Header) -> str | None:
    owned: list[tuple[str, Mapping[str, object]]] = [*((s.qualified, s.parameters) for s in h.stages), *h.state.items()]
    for owner, values in owned:
        for name, value in values.items():
            if value is not None and not isinstance(value, bool | int | float | str | bytes):
                return (
                    f"{name!r} of {owner!r} is a {type(value).__name__} ({value!r}), not an int, float, bool, str, bytes or None"
                )
    return None


def _problem(h: Header) -> str | None:
    """Return what is wrong with the values of `h`, whoever made it, or None."""
    if h.dtype not in STREAM_DTYPES | CARRIED_AS.keys():
        return f"dtype {h.dtype!r} is unknown (known: {', '.join(sorted(STREAM_DTYPES | CARRIED_AS.keys()))})"
    if h.byteorder != "<" and (h.byteorder != ">" or h.itemsize == 1 or h.dtype == "bfloat16"):
        return f"byte order {h.byteorder!r} of {h.dtype} is not possible"
    if len(h.shape) > MAX_RANK:
        return f"the array has {len(h.shape)} dimensions, of at most {MAX_RANK}"
    if any(type(n) is not int or n < 0 for n in h.shape):
        return f"shape {h.shape!r} has an entry that is no count"
    # zero lengths do not count: NumPy makes no array whose other dimensions overflow
    if math.prod(n for n in h.shape if n) * h.itemsize >= 1 << 63:
        return f"an array of shape {h.shape} takes 2**63 bytes or more"
    if not 1 <= h.chunk <= MAX_CHUNK or (h.raw and h.chunk != RAW_CHUNK):
        return f"a chunk of {h.chunk} elements is not {RAW_CHUNK if h.raw else f'within 1..{MAX_CHUNK}'}"
    if h.raw and (h.stages or h.edges is not None or h.state):
        return "raw data have stages, edges or a run state"
    if not h.raw and not h.stages:
        return "the pipeline has no stages"
    if len(h.stages) > MAX_STAGES:
        return f"the pipeline has {len(h.stages)} stages, of at most {MAX_STAGES}"
    for text in (h.core_version, *(t for s in h.stages for t in (s.node, s.stage, s.pack, s.pack_version))):
        problem = unfit(text)
        if problem:
            return f"the name or version {problem}"
    nodes = {s.node for s in h.stages}
    if len(nodes) != len(h.stages) or "" in nodes:
        return f"the nodes {[s.node for s in h.stages]} are not unique, or one has no name"
    for s in h.stages:
        if not s.stage or not s.pack or ":" in s.pack or not 0 <= s.format_version < 1 << 32:
            return f"stage {s.qualified!r} of format version {s.format_version} is not named pack:stage, or has no such version"
    for e in h.edges or ():
        if e.dst_node not in nodes or not (e.src_node in nodes or (e.src_node, e.src_port) == ("", "in")):
            return f"the edge {e.src_node}.{e.src_port} -> {e.dst_node}.{e.dst_port} names an unknown node"
    lost = h.state.keys() - nodes
    if lost:
        return f"the run state names unknown nodes {sorted(lost)}"
    return None


def _bound(value: cbor.Value) -> Bound | None:
    if value is None:
        return None
    match value:
        case [str(mode), float(eb)]:
            try:
                bound = Bound(eb, mode)
            except UsageError as exc:
                raise ArchiveError(f"the archive's error bound is damaged: {exc}") from None
            if bound.mode == mode:
                return bound
    raise ArchiveError(f"the archive's error bound {value!r} is not [mode, float]")


def _scalars(value: cbor.Value, what: str) -> dict[str, Scalar]:
    if not isinstance(value, dict) or any(isinstance(v, list | dict) for v in value.values()):
        raise ArchiveError(f"{what} are not a map of names to scalars")
    return cast("dict[str, Scalar]", value)


def _stages(value: cbor.Value) -> tuple[StageEntry, ...]:
    if not isinstance(value, list):
        raise ArchiveError("header field 'p' is no array")
    entries = []
    for item in value:
        match item:
            case [None | str() as node, str(qualified), int(version), str(pack_version), dict(parameters)] if (
                type(version) is int
            ):
                pack, _, stage = qualified.partition(":")
                if node == stage:
                    raise ArchiveError(f"node {node!r} must be null where it equals the stage's name")
                scalars = _scalars(parameters, f"the parameters of {qualified!r}")
                entries.append(StageEntry(stage if node is None else node, stage, pack, version, pack_version, scalars))
            case _:
                raise ArchiveError(
                    f"stage {len(entries)} of the header is not [node, pack:stage, version, pack version, parameters]"
                )
    return tuple(entries)


def _edges(value: cbor.Value) -> tuple[Edge, ...]:
    if value == []:
        raise ArchiveError("the header lists no edges; a chain has no list of them")
    edges = []
    for item in value if isinstance(value, list) else [value]:
        match item:
            case [str(a), str(b), str(c), str(d)]:
                edges.append(Edge(a, b, c, d))
            case _:
                raise ArchiveError(f"edge {len(edges)} of the header is not [from node, from port, to node, to port]")
    return tuple(edges)


def _state(value: dict[str, cbor.Value]) -> dict[str, dict[str, Scalar]]:
    state = {node: _scalars(values, f"the state of node {node!r}") for node, values in value.items()}
    if not all(state.values()):
        raise ArchiveError("the run state names a node without values")
    return state

"""Parameter structs shared by a stage and its device policy.

A stage declares the fields once, in Python. The bytes are packed here and the C struct that reads them is
generated from the same declaration, with `static_assert`s on its size and on every offset, so the two
compilers and NumPy cannot disagree about the layout.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from .errors import DeclarationError

Scalar = int | float | bool | str | bytes | None

#: field type -> (C type, struct code, bytes); all are naturally aligned
C_TYPES: Final[Mapping[str, tuple[str, str, int]]] = {
    "int8": ("int8_t", "b", 1),
    "uint8": ("uint8_t", "B", 1),
    "int16": ("int16_t", "h", 2),
    "uint16": ("uint16_t", "H", 2),
    "int32": ("int32_t", "i", 4),
    "uint32": ("uint32_t", "I", 4),
    "int64": ("int64_t", "q", 8),
    "uint64": ("uint64_t", "Q", 8),
    "float32": ("float", "f", 4),
    "float64": ("double", "d", 8),
}


# NVRTC before 13.1 has no __builtin_offsetof; EDG's own word for it is the other one
_OFFSETOF: Final = [
    "#ifndef BRIQUETTE_OFFSETOF",
    "#ifdef __CUDACC_RTC__",
    "#define BRIQUETTE_OFFSETOF(type, field) __INTADDR__(&(((type *)0)->field))",
    "#else",
    "#define BRIQUETTE_OFFSETOF(type, field) __builtin_offsetof(type, field)",
    "#endif",
    "#endif",
]


@dataclass(frozen=True)
class ParamStruct:
    """Layout of one op's plain-old-data parameters.

    Parameters
    ----------
    fields : tuple of (name, type)
        In order; types are the keys of `C_TYPES`. Offsets follow C's natural alignment.
    policy_struct : str, optional
        Name of a struct nested in the policy (``Params``) that the header brings itself. The generated
        source then checks that struct against this declaration instead of defining one.
    """

    fields: tuple[tuple[str, str], ...]
    policy_struct: str = ""
    offsets: tuple[int, ...] = field(init=False, compare=False)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        at, offsets, widest, seen = 0, [], 1, set()
        for name, kind in self.fields:
            if kind not in C_TYPES:
                raise DeclarationError(f"parameter {name!r} has type {kind!r}; known types: {', '.join(C_TYPES)}")
            if not name.isidentifier() or name in seen:
                raise DeclarationError(f"parameter name {name!r} is not an identifier, or stands twice")
            seen.add(name)
            width = C_TYPES[kind][2]
            at = -(-at // width) * width
            offsets.append(at)
            at += width
            widest = max(widest, width)
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "size", -(-at // widest) * widest)

    def pack(self, values: Mapping[str, Scalar]) -> bytes:
        """Return the struct's bytes (little-endian) for `values`, which must name exactly the fields."""
        names = {name for name, _ in self.fields}
        if set(values) != names:
            raise DeclarationError(f"parameter values {sorted(values)} do not match the declared fields {sorted(names)}")
        out = bytearray(self.size)
        for (name, kind), at in zip(self.fields, self.offsets, strict=True):
            try:
                struct.pack_into("<" + C_TYPES[kind][1], out, at, values[name])
            except (struct.error, OverflowError, TypeError) as exc:
                raise DeclarationError(f"parameter {name!r} = {values[name]!r} is no {kind}: {exc}") from exc
        return bytes(out)

    def c_source(self, name: str, policy: str = "") -> str:
        """Return C++ that defines struct `name`, or checks `policy`'s own struct and aliases it to `name`."""
        lines = _OFFSETOF.copy()
        if self.policy_struct:
            lines += [f"using {name} = {policy}::{self.policy_struct};"]
        else:
            body = " ".join(f"{C_TYPES[kind][0]} {fname};" for fname, kind in self.fields)
            lines += [f"struct {name} {{ {body} }};"]
        what = f"the parameters of {policy}" if policy else name
        lines.append(f'static_assert(sizeof({name}) == {self.size}, "{what}: size differs from the declaration");')
        for (fname, kind), at in zip(self.fields, self.offsets, strict=True):
            lines.append(
                f"static_assert(BRIQUETTE_OFFSETOF({name}, {fname}) == {at} && "
                f"sizeof((({name}*)0)->{fname}) == {C_TYPES[kind][2]}, "
                f'"{what}: field {fname} differs from the declaration");'
            )
        return "\n".join(lines)

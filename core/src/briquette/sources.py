"""The headers a generated kernel includes: where they lie, what they say, and who ships them.

A pack's device policies are package data, included pack-qualified (``<a_pack/cuda/a_policy.cuh>``).
Finding them never imports the pack, so a pack whose Python part is broken or slow does not matter here, and it
works where packages are installed in a zip file or under a path the compiler could not open.
"""

from __future__ import annotations

import importlib.util
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Final, NamedTuple

from .errors import DeclarationError
from .target import KernelSource

#: top-level directories of the CUDA toolkit's own include tree: their `.cuh` files are the compiler's business
TOOLKIT_DIRECTORIES: Final = frozenset({"cub", "cuda", "nv", "thrust"})

# A comment or a string is matched whole, so that an include inside one is not taken for an include.
_TOKENS: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*\#[ \t]*include[ \t]*<(?P<include>[^>\n]+)>""",
    re.DOTALL | re.MULTILINE,
)
_HEADER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:/[A-Za-z0-9_.+-]+)+\.cuh")


class Headers(NamedTuple):
    """The headers of one translation unit.

    Attributes
    ----------
    texts : mapping of str to str
        Header name, as included, to its whole text; in the order of first inclusion, depth first.
    """

    texts: Mapping[str, str]

    def owner(self, header: str) -> str:
        """Return the distribution that ships `header` (see `owner_of`)."""
        return owner_of(header)


def included(text: str) -> Iterator[str]:
    """Yield the names of the pack headers that C++ source `text` includes, in order.

    Only ``#include <package/.../file.cuh>`` counts; any other include is left to the compiler. Conditions are
    not evaluated: a header included under one counts as well.
    """
    for match in _TOKENS.finditer(text):
        name = match["include"]
        if name and _HEADER.fullmatch(name) and name.split("/", 1)[0] not in TOOLKIT_DIRECTORIES:
            yield name


def resolve_headers(source: KernelSource, overrides: Mapping[str, str] | None = None) -> Headers:
    """Find every pack header that `source` includes, directly or through other headers.

    Parameters
    ----------
    source : KernelSource
    overrides : mapping of str to str, optional
        Header name to text: used in place of what is installed.

    Raises
    ------
    DeclarationError
        A header's pack is not installed, or has no such file; names the pack and who includes the header.
    """
    texts: dict[str, str] = {}

    def visit(text: str, includer: str) -> None:
        for name in included(text):
            if name in texts:
                continue
            override = (overrides or {}).get(name)
            texts[name] = _read(name, includer) if override is None else override
            visit(texts[name], f"<{name}>")

    visit(source.text, f"the generated source {source.name!r}")
    return Headers(texts)


def owner_of(header: str) -> str:
    """Return the name of the distribution that ships `header`; its package's name where none claims it."""
    package = header.split("/", 1)[0]
    return ", ".join(sorted(set(_distributions().get(package, ())))) or package


def _distributions() -> Mapping[str, list[str]]:
    """Distributions by top-level package; reads the metadata of everything installed, so for messages only."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


def _read(name: str, includer: str) -> str:
    package, *parts = name.split("/")
    if any(set(part) == {"."} for part in parts):
        raise DeclarationError(f"{includer} includes <{name}>: write the header's path in its package without '.' or '..'")
    try:
        spec = importlib.util.find_spec(package)  # a top-level name: finds it without importing it
    except ValueError:  # a module made by hand, without a spec
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise DeclarationError(
            f"{includer} includes <{name}>, but no package {package!r} is installed; install the pack that provides it"
        )
    try:
        return _resource(spec, parts).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise DeclarationError(f"header <{name}> of {owner_of(name)} is not UTF-8 text: {exc}") from exc
    except (OSError, KeyError) as exc:  # KeyError: zip files, in older Pythons
        raise DeclarationError(
            f"{includer} includes <{name}>, but the pack {owner_of(name)} (package {package!r}) has no file "
            f"{'/'.join(parts)!r}; check the name, and that the pack lists it as package data"
        ) from exc


def _resource(spec: ModuleSpec, parts: Sequence[str]) -> bytes:
    """Return the bytes of a package's data file; raise OSError, or KeyError, where there is none."""
    if spec.origin is None:  # a namespace package: directories, whose spec has no loader before it is imported
        for directory in spec.submodule_search_locations or ():
            path = Path(directory, *parts)
            if path.is_file():
                return path.read_bytes()
        raise FileNotFoundError("/".join(parts))
    if type(spec.loader) is SourceFileLoader:  # what importlib.resources would do as well, which is slow to import
        return Path(spec.origin).parent.joinpath(*parts).read_bytes()
    from importlib.resources import files

    # it wants a module; one that was never executed will do
    module = types.ModuleType(spec.name)
    module.__spec__ = spec
    file = files(module)
    for part in parts:
        file = file / part
    return file.read_bytes()

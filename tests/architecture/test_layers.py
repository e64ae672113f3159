"""The layers: core knows no pack, a harness knows no stage, a pack knows core only."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKS = sorted(path.parent for path in (*ROOT.glob("harnesses/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")))
HARNESSES = sorted(path.parent for path in ROOT.glob("harnesses/*/pyproject.toml"))

#: beside the standard library; `cbor2` and the like would be one dependency too many
CORE_MAY_IMPORT = {"briquette", "ml_dtypes", "numpy", "pluggy", "tomli", "xxhash"}  # ml_dtypes: where it is, for bfloat16

#: families of stages and harnesses, whatever the spelling of a particular one
STAGE_WORDS = re.compile(r"lorenzo|bitpack|bit_?plane|plain_?rate|zigzag|negabinary|bitshuffle|huffman", re.IGNORECASE)
QUANTIZER = re.compile(r"quantizer", re.IGNORECASE)  # a kind of stage: a harness has one at its head, core knows of none
HARNESS_WORDS = re.compile(r"warp|chunk_?cooperative", re.IGNORECASE)

#: distributions whose module has another name
IMPORTED_AS = {"cuda-core": "cuda", "pillow": "PIL"}

#: first-party distributions that the meta distribution offers as extras and does not require
OFFERED = {"briquette-target-cuda"}

MAX_LINES = 500
MAX_CORE_LINES = 7_000  # of code: comments, docstrings and blank lines are not counted; see docs/notes/core-size.md

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Place = tuple[Path, int, str]


def sources(folder: Path, *suffixes: str) -> list[Path]:
    """Return the files of a distribution's own code; templates are somebody's pack to be."""
    every = (path for suffix in suffixes for path in (folder / "src").rglob(f"*{suffix}"))
    found = sorted(path for path in every if "templates" not in path.parts)
    assert found, f"no source in {folder}"
    return found


@cache
def project(folder: Path) -> dict[str, object]:
    return dict(tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def registered(*groups: str) -> set[str]:
    """Names and classes that the first-party packs register in `groups`."""
    found: set[str] = set()
    for pack in PACKS:
        entry_points = project(pack).get("entry-points", {})
        assert isinstance(entry_points, dict)
        for group in groups:
            for name, target in entry_points.get(f"briquette.{group}", {}).items():
                found |= {name, target.split(":")[1]}
    return found


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and top-level module of every absolute import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.split(".")[0]


def lazy_imports(path: Path) -> set[int]:
    """Return the lines of the imports inside functions, which run when the function is called."""
    functions = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, FUNCTIONS)]
    return {n.lineno for f in functions for n in ast.walk(f) if isinstance(n, (ast.Import, ast.ImportFrom))}


def brought_by(requirements: object) -> set[str]:
    """Return the top-level modules that the requirements bring."""
    assert isinstance(requirements, list)
    names = {re.split(r"[^A-Za-z0-9_-]", line)[0] for line in requirements}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def not_required(pack: Path) -> list[Place]:
    """Return the pack's imports of what it neither requires nor, inside functions, offers as an extra."""
    extras = project(pack).get("optional-dependencies", {})
    assert isinstance(extras, dict)
    own = {path.parent.name for path in pack.glob("src/*/__init__.py")}
    # numpy and pluggy come with core
    allowed = brought_by(project(pack)["dependencies"]) | own | {"briquette", "numpy", "pluggy"} | set(sys.stdlib_module_names)
    optional = {module for lines in extras.values() for module in brought_by(lines)}
    bad: list[Place] = []
    for path in sources(pack, ".py"):
        lazy = lazy_imports(path)
        bad += [(path, at, name) for at, name in imports(path) if name not in allowed and not (name in optional and at in lazy)]
    return bad


def code_lines(path: Path) -> int:
    return len({line for _, line, text in tokens(path)[0] if text.strip()})


def docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def tokens(path: Path) -> tuple[list[Place], list[Place]]:
    """Split a module's words into code (names and strings) and prose (comments and docstrings)."""
    text = path.read_text(encoding="utf-8")
    prose_lines = docstring_lines(ast.parse(text))
    code: list[Place] = []
    prose: list[Place] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.start[0] in prose_lines):
            prose += [(path, token.start[0] + at, line) for at, line in enumerate(token.string.splitlines())]
        elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            code.append((path, token.start[0], token.string))
    return code, prose


def c_code(path: Path) -> list[Place]:
    """Return the lines of a device source without its comments."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [(path, at, line.split("//")[0]) for at, line in enumerate(text.splitlines(), 1)]


def code_of(folder: Path) -> list[Place]:
    code: list[Place] = []
    for path in sources(folder, ".py", ".cuh"):
        code += tokens(path)[0] if path.suffix == ".py" else c_code(path)
    return code


def show(places: list[Place]) -> str:
    return "\n".join(f"{path.relative_to(ROOT)}:{line}: {text.strip()}" for path, line, text in places)


def naming(places: list[Place], names: set[str]) -> list[Place]:
    """Return the places that hold one of `names` as a whole word or string."""
    words = re.compile(r"(?<![\w-])(" + "|".join(re.escape(name) for name in sorted(names)) + r")(?![\w-])")
    return [place for place in places if words.search(place[2])]


def named_in(text: str) -> bool:
    return any(words.search(text) for words in (STAGE_WORDS, QUANTIZER, HARNESS_WORDS))


def test_core_imports_nothing_but_its_few_dependencies() -> None:
    allowed = CORE_MAY_IMPORT | set(sys.stdlib_module_names) | {"tomllib"}
    bad = [(path, line, name) for path in sources(ROOT / "core", ".py") for line, name in imports(path) if name not in allowed]
    assert not bad, "core imports:\n" + show(bad)


def test_core_names_no_pack_in_a_string() -> None:
    bad = [place for place in code_of(ROOT / "core") if re.search(r"briquette_\w+", place[2]) and "__" not in place[2]]
    assert not bad, "core names packages of packs:\n" + show(bad)


def test_core_code_names_no_stage_and_no_harness() -> None:
    bad = [place for place in code_of(ROOT / "core") if named_in(place[2])]
    assert not bad, "core names stages or harnesses:\n" + show(bad)


def test_core_prose_names_stages_and_harnesses_rarely() -> None:
    prose = [place for path in sources(ROOT / "core", ".py") for place in tokens(path)[1]]
    named = [place for place in prose if named_in(place[2])]
    assert len(named) <= 3, "an example may name one; more is a habit:\n" + show(named)


def test_core_code_names_nothing_that_packs_register() -> None:
    names = registered("stages", "harnesses")
    assert {"linear-quantizer", "warp-register"} <= names
    bad = naming(code_of(ROOT / "core"), names)
    assert not bad, "core names what packs register:\n" + show(bad)


def test_core_code_names_no_target_but_its_own() -> None:
    """Targets have everyday names, so whole strings count; `sources` lists folders of a toolkit, one of which is named alike."""
    targets = registered("targets")
    assert "host" in targets
    quoted = {f"{quote}{name}{quote}" for name in targets for quote in "\"'"}
    bad = [place for place in code_of(ROOT / "core") if place[2] in quoted and place[0].name != "sources.py"]
    assert not bad, "core names targets of packs:\n" + show(bad)


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda path: path.name)
def test_harness_names_no_stage(harness: Path) -> None:
    code = code_of(harness)
    bad = naming(code, registered("stages")) + [place for place in code if STAGE_WORDS.search(place[2])]
    assert not bad, f"{harness.name} names stages:\n" + show(bad)


@pytest.mark.parametrize("pack", PACKS, ids=lambda path: path.name)
def test_pack_imports_no_other_pack(pack: Path) -> None:
    """A harness may build on another one, which it then requires; packs of stages, targets and commands stand alone."""
    own = {path.parent.name for path in pack.glob("src/*/__init__.py")}
    if pack in HARNESSES:
        own |= brought_by(project(pack)["dependencies"]) & {f"briquette_{harness.name}" for harness in HARNESSES}
    bad = [
        (path, line, name)
        for path in sources(pack, ".py")
        for line, name in imports(path)
        if name.startswith("briquette_") and name not in own
    ]
    assert not bad, f"{pack.name} imports other packs:\n" + show(bad)


@pytest.mark.parametrize("pack", PACKS, ids=lambda path: path.name)
def test_pack_imports_only_what_it_requires(pack: Path) -> None:
    bad = not_required(pack)
    assert not bad, f"{pack.name} imports what it does not require:\n" + show(bad)


def test_what_an_extra_brings_may_be_imported_inside_functions_only(tmp_path: Path) -> None:
    (tmp_path / "src" / "acme").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["briquette-core"]\noptional-dependencies = { gpu = ["cuda-core[cu12]>=1"] }\n'
    )
    module = tmp_path / "src" / "acme" / "__init__.py"
    module.write_text("import cuda.core\n\ndef f():\n    from cuda import core\n    import torch\n")
    assert not_required(tmp_path) == [(module, 1, "cuda"), (module, 5, "torch")]


def test_modules_are_read_in_one_sitting() -> None:
    folders = [part for folder in (ROOT / "core", *PACKS) for part in (folder / "src", folder / "tests")]
    folders += [ROOT / "tests", ROOT / "tools"]
    every = [path for folder in folders for suffix in ("py", "cuh") for path in folder.rglob(f"*.{suffix}")]
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in every}
    long = {path: count for path, count in lines.items() if count > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines, split them by meaning: {long}"


def test_core_stays_small() -> None:
    total = sum(code_lines(path) for path in sources(ROOT / "core", ".py"))
    assert total <= MAX_CORE_LINES, f"core has {total} lines of code; what can live in a pack?"


@pytest.mark.parametrize("folder", [ROOT / "core", *PACKS], ids=lambda path: path.name)
def test_every_distribution_carries_the_same_licence(folder: Path) -> None:
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project(folder)["license"] == project(ROOT)["license"] == "BSD-3-Clause"


def test_meta_distribution_requires_every_first_party_one_or_offers_it() -> None:
    dependencies = project(ROOT)["dependencies"]
    assert isinstance(dependencies, list)
    required = {line.split(">")[0] for line in dependencies}
    assert required == {project(folder)["name"] for folder in (ROOT / "core", *PACKS)} - OFFERED


def test_meta_distribution_offers_the_gpu_target_for_each_cuda_major() -> None:
    extras = project(ROOT)["optional-dependencies"]
    offered = project(ROOT / "plugins" / "target-cuda")["optional-dependencies"]
    assert isinstance(extras, dict)
    assert isinstance(offered, dict)
    assert set(offered) == {"cuda12", "cuda13"}
    for extra in offered:
        assert extras[extra] == [f"briquette-target-cuda[{extra}]>=0.1,<0.2"]

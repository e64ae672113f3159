"""The refusals of planner and harnesses, read from their source: each string that a function of theirs may return."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

#: file -> the functions that return why something does not fuse
SOURCES = {
    "core/src/briquette/planner.py": r"_barrier|_find_runner|_split_side|_side_reasons|_why_apart|_reference_steps",
    "harnesses/warp/src/briquette_warp/harness.py": r"refuse",
    "harnesses/warp/src/briquette_warp/cuda_program.py": r"refuse\w*",
    "harnesses/warp/src/briquette_warp/chain.py": r"_?refuse\w*",
    "harnesses/warp/src/briquette_warp/element.py": r"_?refuse\w*",
    "harnesses/chunk/src/briquette_chunk/harness.py": r"refuse",
    "harnesses/chunk/src/briquette_chunk/cuda_program.py": r"refuse\w*",
    "harnesses/chunk/src/briquette_chunk/chain.py": r"_?refuse\w*",
}

GAP = "..."


def messages(root: Path) -> dict[str, str]:
    """Return the messages, with `GAP` for what is filled in, and the file each stands in."""
    found: dict[str, str] = {}
    for name, functions in SOURCES.items():
        tree = ast.parse((root / name).read_text(encoding="utf-8"))
        nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and re.fullmatch(functions, n.name)]
        assert nodes, f"{name} has none of the functions {functions}"
        for node in nodes:
            for text in _texts(node):
                found.setdefault(text, name)
    return found


def _texts(function: ast.FunctionDef) -> Iterator[str]:
    inner = {id(part) for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inner |= {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr):
            parts = [str(p.value) if isinstance(p, ast.Constant) else GAP for p in node.values]
            text = "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        text = re.sub(r"^\.\.\.: ", "", re.sub(r"\.{4,}", GAP, text))
        if " " in text and len(re.findall(r"[a-z]{2,}", text)) >= 3:  # a sentence, not a name
            yield text

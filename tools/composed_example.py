"""``python tools/composed_example.py [--write]``: the generated source that docs/composed.md shows; ``--write`` puts it there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import briquette as bq
from briquette.planner import chain_members
from briquette_warp.chain import Composition
from briquette_warp.compose import cuda_source, host_source

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "composed.md"
PRESET: Final = "zigzag"
_BLOCK: Final = re.compile(r"(<!-- generated: (\w+) -->\n```cpp\n)(.*?)(```)", re.DOTALL)


def example(which: str) -> str:
    """Return the source of the preset's compression on `which`, ``host`` or ``cuda``; of repetitive lines the first ones only."""
    plan = bq.Pipeline.from_preset(PRESET).plan("float32", "numpy")
    parts = Composition(tuple(chain_members(plan.graph, plan.types, plan.graph.order, "forward")), plan.chunk)
    source = host_source(parts, "forward") if which == "host" else cuda_source(parts, "forward", 4)
    field = r"static_assert\(BRIQUETTE_OFFSETOF.*\n"
    text = re.sub(f"({field})(?:{field})+", r"\1// and so on for each field\n", source.text).strip("\n") + "\n"
    if which == "cuda":  # the middle is the host's but for how policies are called
        text = text[text.index("struct Chain {") :]
        return re.sub(r"  typedef float Source;.*?(?=  template <bool Whole)", "  // as above\n", text, count=1, flags=re.DOTALL)
    return text


def filled(page: str) -> str:
    """Return the page with its blocks as the harness composes them now."""
    return _BLOCK.sub(lambda found: found[1] + example(found[2]) + found[4], page)


if __name__ == "__main__":
    made = filled(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    else:
        print("\n\n".join(found[3] for found in _BLOCK.finditer(made)))

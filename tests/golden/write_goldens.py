"""Write golden archives that are not there yet: ``python tests/golden/write_goldens.py [NAME ...]``, by default all new ones.

An archive once written is never written again: what it holds is what readers must go on decoding. Where today's writer
makes other bytes, that is a new format version (a folder and recipes of its own) or a mistake.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from typing import Any

import numpy as np
from golden_recipes import ARCHIVES, MANIFEST, RECIPES, Recipe, manifest

import briquette as bq


def sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(recipe: Recipe, blob: bytes) -> dict[str, Any]:
    """Return what the manifest records of an archive, after checking that it holds what it should."""
    field = recipe.field()
    assert bq.verify(blob, field, target="numpy").ok
    back = bq.decompress(blob, target="numpy")
    return {
        "archive_sha256": sha256(blob),
        "archive_bytes": len(blob),
        "input_sha256": sha256(np.ascontiguousarray(field)),
        "output_sha256": sha256(np.ascontiguousarray(back)),
        "dtype": back.dtype.str,
        "shape": list(back.shape),
        "raw": recipe.raw,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes to write (default: those without an archive)")
    names = parser.parse_args().names
    known = manifest() if MANIFEST.exists() else {}
    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        parser.error(f"there is no recipe {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    names = names or [name for name in RECIPES if name not in known]
    there = [name for name in names if name in known or (ARCHIVES / f"{name}.brq").exists()]
    if there:
        parser.error(f"{', '.join(there)}: written already; golden archives are never overwritten")
    ARCHIVES.mkdir(exist_ok=True)
    for name in names:
        blob = RECIPES[name].compress("numpy")
        known[name] = entry(RECIPES[name], blob)
        with (ARCHIVES / f"{name}.brq").open("xb") as file:
            file.write(blob)
        print(f"{name}: {len(blob)} bytes")
        MANIFEST.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    if not names:
        print("every recipe has its archive")


if __name__ == "__main__":
    main()

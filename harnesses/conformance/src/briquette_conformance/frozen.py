"""Archives to keep: what a release writes, and every later one must read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

import briquette as bq
from briquette.archive import Archive

from .base import Context
from .cases import Case
from .data import smooth, special

#: elements of an archive: few, for it lies in the pack's repository for ever
_ELEMENTS: Final = (904, 56)


def freeze(ctx: Context, folder: Path) -> list[Path]:
    """Write an archive of every stage, alone and in a chain, beside the array that it decodes to; return the new ones.

    One that is there already stays as it is: an earlier release wrote it. What the reference holds raw is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for subject in ctx.subjects:
        for number, case in enumerate(subject.alone_and_joined):
            path = folder / f"{subject.stage.name}-{number}.brq"
            if path.exists():
                continue
            blob = bytes(bq.compress(_field(case), pipeline=bq.chain(*case.stages), target="numpy", **case.bound_given))
            if Archive.open(blob).header.raw:
                continue
            path.write_bytes(blob)
            np.save(path.with_suffix(".npy"), bq.decompress(blob, target="numpy"))
            written.append(path)
    return written


def _field(case: Case) -> Any:
    parts = [make(n, case.dtype) for make, n in zip((smooth, special), _ELEMENTS, strict=True)]
    x = np.concatenate(parts)
    return x.reshape(4, -1) if any(s.reads_shape for s in case.stages) else x

"""What takes a process of its own: fresh readers, machines without a compiler, damaged archives."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import briquette as bq
from briquette.archive import Archive

from .base import Context, Proof, check, main_case
from .cases import Case, Subject
from .child import ask
from .data import ragged, smooth
from .report import Fault, NotHere

#: what a machine without a compiler and without CUDA has
_BARE: Final[dict[str, str | None]] = {"PATH": "", "CXX": None, "CUDA_VISIBLE_DEVICES": "", "BRIQUETTE_TARGET": None}


def _archived(ctx: Context, case: Case) -> tuple[Any, bytes, str, str]:
    """Return an array, its archive made by the reference, the hash of the reconstruction, and the pipeline as TOML."""
    pipe = bq.chain(*case.stages)
    # coded, not raw: a field with much to save, and parts that have little
    x = np.concatenate([smooth(2 * case.chunk, case.dtype), ragged(case.chunk // 3 + 5, case.dtype)])
    blob = bytes(bq.compress(x, pipeline=pipe, target="numpy", **case.bound_given))
    back = hashlib.sha256(np.ascontiguousarray(bq.decompress(blob, target="numpy")).tobytes()).hexdigest()
    return x, blob, back, pipe.to_toml()


def _cases(subject: Subject) -> tuple[Case, ...]:
    main_case(subject)
    return subject.alone_and_joined


@check("fresh process")
def fresh(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """A fresh process decodes from the archive alone; one without compiler and CUDA makes the same bytes."""
    targets = ["numpy", *(p.name for p in ctx.places.kernels if p.name != "emulated")]
    files: dict[str, bytes] = {}
    decode, bare, expected = [], [], []
    for i, case in enumerate(_cases(subject)):
        x, blob, back, toml = _archived(ctx, case)
        buffer = io.BytesIO()
        np.save(buffer, x)
        files[f"{i}.brq"], files[f"{i}.npy"] = blob, buffer.getvalue()
        decode += [({"do": "decode", "file": f"{i}.brq", "target": t}, case, back) for t in targets]
        bound = (case.bound.eb, case.bound.mode) if case.bound else (None, "abs")
        bare.append({"do": "compress", "file": f"{i}.npy", "toml": toml, "eb": bound[0], "mode": bound[1], "target": None})
        expected.append((case, hashlib.sha256(blob).hexdigest(), back))
    for (task, case, back), answer in zip(decode, ask([t for t, _, _ in decode], files), strict=True):
        if answer.get("sha256") != back:
            said = answer.get("error", "it decodes to other values")
            raise Fault(f"{case}: a process that has never compressed anything, on {task['target']}: {said}")
    for (case, digest, back), answer in zip(expected, ask(bare, files, _BARE), strict=True):
        if (answer.get("sha256"), answer.get("back")) != (digest, back):
            said = answer.get("error", f"its archive or values differ (it ran on {answer.get('target')})")
            raise Fault(f"{case}: on a machine without a compiler and without CUDA: {said}")
    yield Proof(tuple(targets), f"{len(expected)} archives, also without a compiler and without CUDA")


@check("damage")
def damage(ctx: Context, subject: Subject) -> Iterator[Proof]:
    """Mutated payloads with checksums made right are refused as damaged, or decode, alike on every target; nothing crashes."""
    targets = ["numpy", *(p.name for p in ctx.places.kernels if p.name != "emulated")]
    files, tasks, cases = {}, [], []
    count = 1500 if ctx.full else 250
    for i, case in enumerate(_cases(subject)):
        _, blob, _, _ = _archived(ctx, case)
        if Archive.open(blob).header.raw:
            continue
        files[f"{i}.brq"] = blob
        tasks.append({"do": "damage", "file": f"{i}.brq", "targets": targets, "mutations": count, "seed": i})
        cases.append(case)
    if not tasks:
        raise NotHere("its archives hold the data raw: nothing is coded that could be damaged")
    refused = 0
    for case, answer in zip(cases, ask(tasks, files), strict=True):
        if "error" in answer:
            raise Fault(f"{case}, a damaged archive: {answer['error']}")
        refused += answer["refused"]
    yield Proof(tuple(targets), f"{len(tasks) * count} mutations, {refused} refused")

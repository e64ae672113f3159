"""A small workload for compute-sanitizer: every preset, both directions, all residues of a small size, values kept aside,
and calls that come again on the same device memory, graphs and all.

compute-sanitizer --tool memcheck python tests/gpu/sanitize.py     (also racecheck, synccheck, initcheck)
"""

from __future__ import annotations

import sys

import numpy as np

import briquette as bq
from briquette import discovery
from briquette.errors import PipelineError
from briquette_target_cuda.target import CudaMemory


def repeated(preset: str, x: np.ndarray) -> int:
    """Return how many results of calls that come again differ from the reference's; in two of five a NaN is kept aside."""
    memory, wrong = CudaMemory(), 0
    given, out = memory.upload(x), memory.upload(x)
    for turn in range(5):
        x[5] = np.nan if turn in (1, 3) else 1
        memory.upload(x, given)
        run = bq.compress_run(x, 1e-2, "rel", pipeline=preset, target="numpy")
        archive = bq.compress_on_device(given, 1e-2, "rel", pipeline=preset)
        archive.decompress(out)
        wrong += memory.download(out).tobytes() != bq.decompress(run.archive, target="numpy").tobytes() and not run.raw
        wrong += not run.raw and archive.to_bytes() != run.archive
    return wrong


def main() -> int:
    rng = np.random.default_rng(1)
    step = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    wrong = 0
    for preset in discovery.registry().presets():
        for dtype in ("float32", "float64"):
            try:
                bq.Pipeline.from_preset(preset).plan(dtype)
            except PipelineError:
                continue  # a third party's, for other types
            for n in [*range(1, 258, step), 8191, 8193, 3 * 8192 + 5]:
                x = np.cumsum(rng.standard_normal(n)).astype(dtype)
                x[rng.random(n) < 0.1] = np.nan
                archive = bytes(bq.compress(x, 1e-3, "rel", pipeline=preset, target="numpy"))
                for fusion in ("auto", "off") if n % 16 == 1 else ("auto",):
                    wrong += bq.compress(x, 1e-3, "rel", pipeline=preset, target="cuda", fusion=fusion) != archive
                    back = bq.decompress(archive, target="cuda", fusion=fusion)
                    wrong += back.tobytes() != bq.decompress(archive, target="numpy").tobytes()
        for n in (101, 8192, 20_000):
            wrong += repeated(preset, np.cumsum(rng.standard_normal(n)).astype("float32"))
    print("wrong:", wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""One array, one archive: again and again, on any number of threads, in any process, after a fork (cases H1 and M3)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity_kit import FUSED, PRESETS, REFERENCE, STAGED, WAYS, Way, assert_plan, bits, compressed, restored, sha256, walk

import briquette as bq

EB = 4e-3

# prints the SHA-256 of the archives and reconstructions of a fixed field, made in every way
EVERYWHERE = """
import hashlib, json
import numpy as np
import briquette as bq
n = 70000
x = (np.sin(np.arange(n) / 40) + np.arange(n) % 7 / 50).astype(np.float32)
x[[5, 9000, 9001, 9002, 60000]] = np.nan, np.inf, np.inf, np.inf, 3e37
said = {}
for preset in ("fast", "planes", "zigzag", "adaptive", "archive"):
    for target, fusion in (("numpy", "auto"), ("host", "off"), ("host", "auto")):
        made = bq.compress_run(x, 4e-3, pipeline=preset, target=target, fusion=fusion, threads=3)
        assert not made.raw
        fused = (target, fusion) == ("host", "auto")
        assert [len(made.plan.forward.groups), len(made.plan.inverse.groups)] == [fused, fused]
        blob = bytes(made.archive)
        back = bq.decompress(blob, target=target, fusion=fusion, threads=3)
        said[f"{preset} {target} {fusion}"] = [hashlib.sha256(b).hexdigest() for b in (blob, back)]
        said[f"{preset} toml"] = bq.Pipeline.from_preset(preset).to_toml()
print(json.dumps(said))
"""

# forks, before anything ran or after the thread pool has started, and compares the child's archive with the parent's
FORK = """
import hashlib, os, sys, threading
import numpy as np
import briquette as bq
early, fusion = sys.argv[1] == "early", sys.argv[2]
x = np.cumsum(np.sin(np.arange(8192 * 80 + 5) / 11)).astype(np.float32) / 50
x[::1000] = np.nan

def digest():
    made = bq.compress_run(x, 1e-3, target="host", fusion=fusion, threads=4)
    assert not made.raw
    assert made.plan.forward.launches == made.plan.inverse.launches == (1 if fusion == "auto" else 3)
    back = bq.decompress(made.archive, target="host", fusion=fusion, threads=4)
    assert np.nanmax(np.abs(back - x)) < 1.001e-3
    return hashlib.sha256(made.archive).digest() + hashlib.sha256(back).digest()

mine = b"" if early else digest()
cuda = [m for m in sys.modules if m.split(".")[0] in ("cuda", "cupy", "numba", "pycuda")]
assert not cuda, f"CUDA was imported before the fork: {cuda}"
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    try:
        os.write(writer, digest())
    finally:
        os._exit(0)
os.close(writer)
theirs = b""
while part := os.read(reader, 64):
    theirs += part
os.waitpid(child, 0)
mine = mine or digest()
assert digest() == mine, "the parent's archive changed after the fork"
assert theirs == mine, f"the child's {len(theirs)} bytes are not the parent's"
print("same")
"""


def python(code: str, folder: Path, *arguments: str, **variables: str) -> str:
    """Run `code` in a fresh interpreter and return what it printed; a hang is a failure."""
    env = {**os.environ, **variables}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("preset", PRESETS)
def test_twenty_times_the_same_bytes(preset: str, rng: np.random.Generator) -> None:
    x = walk(rng, 8192 * 20 + 777, "float32")
    first = compressed(x, EB, "abs", preset, REFERENCE)
    assert not first.raw
    blob, back = bytes(first.archive), restored(bytes(first.archive), x, REFERENCE).array
    for way in (STAGED, FUSED):
        for threads in (1, 2, 16):
            for turn in range(20):
                again = compressed(x, EB, "abs", preset, way, threads)
                assert again.archive == blob, (way, threads, turn)
                decoded = restored(again.archive, x, way, threads)
                assert np.array_equal(bits(decoded.array), bits(back)), (way, threads, turn)
            assert_plan(again.plan, way, PRESETS[preset])
            assert_plan(decoded.plan, way, PRESETS[preset])


def test_two_processes_with_other_hash_seeds(tmp_path: Path) -> None:
    first, second = (json.loads(python(EVERYWHERE, tmp_path, PYTHONHASHSEED=seed)) for seed in ("0", "4242"))
    assert first == second
    for preset in PRESETS:
        assert len({tuple(first[f"{preset} {target} {fusion}"]) for target, fusion in WAYS}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("fusion", ["auto", "off"])
@pytest.mark.parametrize("when", ["early", "late"])
def test_use_in_a_forked_child(when: str, fusion: str, tmp_path: Path) -> None:
    assert python(FORK, tmp_path, when, fusion) == "same\n"


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("callers", [1, 8, 16, 32])
def test_many_callers_share_one_pipeline(callers: int, way: Way, rng: np.random.Generator) -> None:
    """The pipeline is new: its first plan and programs are made while all callers ask for them."""
    shared = bq.Pipeline.from_preset("zigzag")
    fields = [walk(rng, 8192 * (i % 3 + 1) + 41 * i + 600, ("float32", "float64")[i % 2]) for i in range(callers)]
    expected = [bq.compress_run(x, EB, pipeline="zigzag", target="numpy") for x in fields]
    assert not any(run.raw for run in expected)
    archives = [bytes(run.archive) for run in expected]

    def work(i: int) -> tuple[str, str, Any]:
        made = compressed(fields[i], EB, "abs", shared, way, threads=1 + i % 3)
        back = restored(archives[i], fields[i], way, threads=1 + i % 3)
        return sha256(made.archive), sha256(back.array), made.plan

    with ThreadPoolExecutor(callers) as pool:
        found = list(pool.map(work, range(callers)))
    for archive, (blob, back, plan) in zip(archives, found, strict=True):
        assert blob == sha256(archive)
        assert back == sha256(bq.decompress(archive, target="numpy"))
        assert_plan(plan, way, PRESETS["zigzag"])


def test_one_caller_on_many_threads(rng: np.random.Generator) -> None:
    """More threads than chunks, and than blocks of chunks."""
    x = walk(rng, 8192 * 66 + 1, "float32")
    blob = bq.compress(x, EB, target="numpy")
    back = bq.decompress(blob, target="numpy")
    for threads in (1, 8, 16, 32, 100):
        made = compressed(x, EB, "abs", "fast", FUSED, threads)
        assert not made.raw
        assert made.archive == blob, threads
        assert np.array_equal(bits(restored(blob, x, FUSED, threads).array), bits(back)), threads

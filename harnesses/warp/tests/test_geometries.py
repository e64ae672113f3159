"""Every geometry that measuring may choose: the same bytes on the host, sources that say what they are for GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette.errors import TargetUnavailable
from briquette.executor import Executable
from briquette.harness import Direction, Geometry
from briquette.plan import Step
from briquette.ports import Chunked
from briquette.record import Bound
from briquette.selection import choose_target
from briquette_warp.chain import Composition
from briquette_warp.cuda_program import CudaProgram, shared_bytes
from briquette_warp.harness import WarpHarness

#: chain, type of the array, lengths of a lane's array
CHAINS: dict[str, tuple[Sequence[Any], str, tuple[int, ...]]] = {
    "fast": (["linear-quantizer", "lorenzo-1d", "plain-rate"], "float32", (256,)),
    "planes": (["linear-quantizer", "small-lorenzo", "adaptive-bitplane"], "float32", (256, 32, 64, 128)),
    "planes64": (["linear-quantizer", "small-lorenzo", "adaptive-bitplane"], "float64", (256, 32, 64, 128)),
    "zigzag": (["linear-quantizer", "small-lorenzo", "zigzag", "plain-rate"], "float32", (256, 32, 64, 128)),
    "codes": (["small-lorenzo", "adaptive-bitplane"], "int64", (256, 32, 64, 128)),
    "odd": (["linear-quantizer", "odd-lorenzo"], "float32", (240, 48, 96)),
    "head": (["linear-quantizer"], "float64", (256, 32, 64, 128)),
}


def pipeline(name: str) -> bq.Pipeline:
    stage = {
        "small-lorenzo": "use = 'lorenzo-1d'\nparams = { region = 32 }",
        "odd-lorenzo": "use = 'lorenzo-1d'\nparams = { region = 48 }",
    }
    return bq.Pipeline.from_toml("".join(f"[[stage]]\n{stage.get(each, f'use = {each!r}')}\n" for each in CHAINS[name][0]))


def field(dtype: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    walk = rng.normal(size=count).cumsum()
    if dtype.startswith("int"):
        return (1000 * walk).astype(dtype)
    x = walk.astype(dtype)
    x[rng.integers(0, count, count // 50)] = np.nan
    x[rng.integers(0, count, 20)] *= 1e30
    return x


def steps(run: Executable) -> list[tuple[Step, Direction]]:
    return [(step, plan.direction) for plan in (run.plan.forward, run.plan.inverse) for step in plan.steps]


def offered(run: Executable, step: Step, direction: Direction) -> Sequence[Geometry]:
    return run.harnesses[step.harness].geometries(run.members(step, direction), direction, run.target, run.plan.chunk)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def host() -> Any:
    try:
        return choose_target("host")
    except TargetUnavailable as exc:
        pytest.skip(str(exc))


def arrays(values: dict[Any, Any]) -> list[bytes]:
    found = []
    for value in values.values():
        found += [value.sizes.tobytes(), value.words.tobytes()] if isinstance(value, Chunked) else [value.tobytes()]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast", "planes", "codes", "odd", "head"])
def test_every_host_geometry_makes_the_same_bytes(host: Any, name: str) -> None:
    _, dtype, lanes = CHAINS[name]
    x = field(dtype, 37 * 8192 + 4321)
    bound = Bound(1e-2) if dtype.startswith("float") else None
    run = pipeline(name).executable(dtype, "host", "auto")
    assert len(run.plan.forward.steps) == len(run.plan.inverse.steps) == 1
    record, values = run.forward(x, bound, 1)
    expected = arrays(values)
    back = run.inverse(values, record, x.size, 1, np.empty_like(x)).tobytes()
    seen: dict[Direction, list[dict[str, int]]] = {"forward": [], "inverse": []}
    for step, direction in steps(run):
        for geometry in offered(run, step, direction):
            settings = dict(geometry.settings)
            seen[direction].append(settings)
            assert f"static constexpr int lane = {settings['lane']};" in geometry.source.text
            harness, members = run.harnesses[step.harness], run.members(step, direction)
            run.install(step, direction, harness.program(members, direction, host, run.plan.chunk, geometry))
            for threads in (1, 3):
                if direction == "forward":
                    assert arrays(run.forward(x, bound, threads)[1]) == expected, (settings, threads)
                else:
                    out = np.full_like(x, 7)
                    assert run.inverse(values, record, x.size, threads, out).tobytes() == back, (settings, threads)
    for found in seen.values():
        assert found == [{"lane": lane, "grain": grain} for lane in lanes for grain in (1, 2, 4)]


def test_the_first_geometry_is_what_runs_without_a_choice(host: Any) -> None:
    texts: list[str] = []
    for name, (_, dtype, _) in CHAINS.items():
        run = pipeline(name).executable(dtype, "host", "auto")
        for step, direction in steps(run):
            texts.clear()
            target = SimpleNamespace(dialect="c++", compile=lambda source: texts.append(source.text))
            run.harnesses[step.harness].program(run.members(step, direction), direction, target, run.plan.chunk)  # type: ignore[arg-type]
            assert texts == [offered(run, step, direction)[0].source.text]


@pytest.mark.parametrize(("name", "own", "others"), [("fast", 5, (2, 3, 4, 6)), ("planes64", 3, (2,))])
def test_cuda_geometries_are_launch_bounds_that_fit(name: str, own: int, others: tuple[int, ...]) -> None:
    run = pipeline(name).executable(CHAINS[name][1], "numpy")
    nodes = tuple(run.graph.nodes)
    target = SimpleNamespace(dialect="cuda", compile=lambda source: source)
    step = SimpleNamespace(nodes=nodes)
    for direction in ("forward", "inverse"):
        members = run.members(step, direction)  # type: ignore[arg-type]
        found = WarpHarness().geometries(members, direction, target, 8192)  # type: ignore[arg-type]
        assert [dict(g.settings)["blocks"] for g in found] == [own, *others]
        shared = shared_bytes(Composition(tuple(members), 8192))
        assert all(n * (shared + 1024) <= 228 * 1024 for n in others)
        for geometry in found:
            stated = re.findall(rf"__launch_bounds__\(256, (\d+)\) briquette_{direction}\(", geometry.source.text)
            assert stated == [str(dict(geometry.settings)["blocks"])]
            program = WarpHarness().program(members, direction, target, 8192, geometry)  # type: ignore[arg-type]
            assert isinstance(program, CudaProgram)
            assert program._module is geometry.source
        plain = WarpHarness().program(members, direction, target, 8192)  # type: ignore[arg-type]
        assert plain._module.text == found[0].source.text  # type: ignore[attr-defined]


TUNE = """
import sys
import numpy as np
import briquette as bq
x = np.load(sys.argv[1])
if sys.argv[2] == "tune":
    report = bq.Pipeline.from_preset("fast").tune(x, 1e-3, target="host", threads=1)
    print(*(f"{c.direction}: {c.chosen}" for c in report.choices), sep="\\n")
else:
    run = bq.Pipeline.from_preset("fast").executable("float32", "host")
    blob = bq.compress(x, 1e-3, pipeline="fast", target="host")
    for plan in (run.plan.forward, run.plan.inverse):
        lane, grain = run.program(plan.steps[0], plan.direction)._parts.lane, run.program(plan.steps[0], plan.direction)._grain
        print(f"{plan.direction}: lane {lane}, grain {grain}")
    print(hash(bytes(blob)) == hash(bytes(bq.compress(x, 1e-3, pipeline="fast", target="numpy"))))
"""


def in_process(path: Path, what: str, cache: Path, **environment: str) -> list[str]:

    env = {**os.environ, "BRIQUETTE_CACHE_DIR": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", TUNE, str(path), what], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_choice_is_remembered_across_processes(host: Any, tmp_path: Path) -> None:
    path, cache = tmp_path / "x.npy", tmp_path / "cache"
    np.save(path, np.random.default_rng(2).normal(size=100 * 8192).cumsum().astype(np.float32))
    plain = ["forward: lane 256, grain 1", "inverse: lane 256, grain 1"]
    assert in_process(path, "run", cache) == [*plain, "True"]
    chosen = in_process(path, "tune", cache)
    assert [line.split(":")[0] for line in chosen] == ["forward", "inverse"]
    # whatever measuring found: have another one stand there, so that what is read back is not the default by chance
    script = """
import json
from briquette.cache import Cache
cache = Cache.from_environment()
for path in cache.directory.rglob("*.brqc"):
    entry = cache.get(path.stem)
    if b"chosen" in entry:
        assert cache.put(path.stem, json.dumps({**json.loads(entry), "chosen": {"lane": 256, "grain": 4}}).encode())
"""
    assert in_process(path, "run", cache) == [*chosen, "True"]

    subprocess.run([sys.executable, "-c", script], env={**os.environ, "BRIQUETTE_CACHE_DIR": str(cache)}, check=True)
    assert in_process(path, "run", cache) == ["forward: lane 256, grain 4", "inverse: lane 256, grain 4", "True"]
    assert in_process(path, "run", cache, BRIQUETTE_TUNE="0") == [*plain, "True"]

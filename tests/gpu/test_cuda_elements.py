"""Policies in the element form, plain CUDA, on a GPU: the CPU's archives and reconstructions, staged and fused."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def acme(once: Callable[[str, Callable[[Path], None]], Path], repo_root: Path) -> Iterator[dict[str, tuple[Any, ...]]]:
    """The pack acme-warp in this process; returns chains of its stages and of ours."""

    def install(folder: Path) -> None:
        shutil.copytree(repo_root / "tests/outside/packs/acme-warp", folder / "source")
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-build-isolation"]
        done = subprocess.run(
            [*command, "--target", folder / "site", folder / "source"], text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr

    site = once("acme-warp", install) / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        with discovery.use(discovery.Registry.scan()):
            difference, planes, lift = (
                getattr(importlib.import_module(f"acme_warp.{module}"), name)
                for module, name in (("difference", "WarpDifference"), ("planes", "WarpPlanes"), ("lift", "WarpLift"))
            )
            yield {
                "plain": ("linear-quantizer", difference(), planes()),
                "lifted": ("linear-quantizer", difference(), lift(), planes(1)),
                "largest": ("linear-quantizer", difference(32), planes(32)),
                "plain-rate": ("linear-quantizer", difference(4), "plain-rate"),
                "lorenzo": ("linear-quantizer", "lorenzo-1d", planes(2)),
            }
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_warp"]:
        del sys.modules[name]


def assert_same(x: np.ndarray[Any, Any], eb: float, mode: str, chain: tuple[Any, ...]) -> None:
    """Compress and decompress on numpy and on cuda, staged and fused; device arrays too."""
    pipe = bq.chain(*chain)
    archive = bytes(pipe.compress(x, eb, mode, target="numpy"))
    expected = bq.decompress(archive, target="numpy")
    for fusion in ("auto", "off"):
        made = pipe.run(x, eb, mode, target="cuda", fusion=fusion)
        assert made.archive == archive, f"fusion {fusion}: {len(made.archive)} bytes, not {len(archive)}"
        restored = bq.decompress(archive, target="cuda", fusion=fusion, out=np.full_like(x, np.nan))
        assert restored.tobytes() == expected.tobytes(), f"fusion {fusion}"


@pytest.mark.parametrize("name", ["plain", "lifted", "largest", "plain-rate", "lorenzo"])
def test_one_launch_each_way_and_the_same_bytes(name: str, acme: dict[str, tuple[Any, ...]]) -> None:
    pipe = bq.chain(*acme[name])
    plan, staged = pipe.plan("float32", target="cuda", fusion="auto"), pipe.plan("float32", target="cuda", fusion="off")
    assert plan.forward.groups == plan.inverse.groups == (tuple(pipe.graph.nodes),)
    assert plan.forward.launches == plan.inverse.launches == 1
    assert staged.forward.launches == staged.inverse.launches == len(acme[name])
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    counts = [*range(1, 601, 7), *(k * 8192 + d for k in (1, 2) for d in (-257, -1, 0, 1, 31)), 64 * 8192 + 1, 130 * 8192 + 5]
    for n in counts:
        x = np.cumsum(rng.standard_normal(n)).astype(np.float32)
        if n > 600:
            x[rng.random(n) < 0.01] = np.nan
        assert_same(x, 1e-3, "rel", acme[name])
        assert_same(x, 1e-2, "abs", acme[name])


def test_every_small_count(acme: dict[str, tuple[Any, ...]]) -> None:
    for n in range(1, 601):
        assert_same(np.sin(np.arange(n) / 9).astype(np.float32), 1e-3, "abs", acme["plain"])


@pytest.mark.parametrize("name", ["plain", "plain-rate"])
def test_codes_that_float32_cannot_carry(name: str, acme: dict[str, tuple[Any, ...]]) -> None:
    x = (3.3 * np.sin(np.arange(20_011) / 3000.0)).astype(np.float32)
    x[500] = np.nan
    for eb in (1e-6, 5e-7, 1e-9):
        assert_same(x, eb, "abs", acme[name])


def test_archives_that_stay_on_the_device(acme: dict[str, tuple[Any, ...]]) -> None:
    torch = pytest.importorskip("torch")
    x = (3.3 * np.sin(np.arange(40_011) / 3000.0)).astype(np.float32)
    pipe = bq.chain(*acme["plain"])
    for eb in (1e-3, 5e-7):  # the second one is done by the NumPy forms, and put back on the device
        expected = bytes(pipe.compress(x, eb, target="numpy"))
        archive = bq.compress_on_device(torch.from_numpy(x).cuda(), eb, pipeline=pipe)
        assert archive.to_bytes() == expected
        back = torch.as_tensor(archive.decompress(), device="cuda").cpu().numpy()
        assert back.tobytes() == bq.decompress(expected, target="numpy").tobytes()

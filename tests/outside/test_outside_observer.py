"""The example plugin: what it is told of runs, the command it adds, and that a fault in it fails no run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette import discovery
from briquette.selection import choose_target

pytestmark = pytest.mark.usefixtures("outside")


def events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def test_it_sees_plans_compilations_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_OBSERVER_LOG", str(tmp_path / "runs.jsonl"))
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "cache"))
    x = np.sin(np.arange(20_000) / 40).astype(np.float32)
    host = choose_target("host")
    assert host is not None
    target = "numpy" if host.unavailable() else "host"
    blob = bq.compress(x, 1e-3, pipeline="second-order", target=target, fusion="auto")
    bq.decompress(blob, target=target, fusion="auto")
    seen = events(tmp_path / "runs.jsonl")
    group = ["linear-quantizer", "difference2", "plain-rate"]
    assert seen[0]["event"] == "plan"
    assert (seen[0]["target"], seen[0]["groups"]) == (target, [group] if target == "host" else [])
    assert [e["direction"] for e in seen if e["event"] == "run"] == ["forward", "inverse"]
    assert len([e for e in seen if e["event"] == "compiled"]) >= (2 if target == "host" else 0)


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACME_OBSERVER_LOG", raising=False)
    monkeypatch.chdir(tmp_path)
    bq.compress(np.zeros(5000, np.float32), 1e-3, target="numpy")
    assert os.listdir(tmp_path) == []


def test_a_fault_of_the_plugin_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_OBSERVER_LOG", str(tmp_path / "no" / "such" / "folder"))
    x = np.sin(np.arange(9000) / 40).astype(np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blob = bq.compress(x, 1e-3, target="numpy")
    said = [str(w.message) for w in caught if issubclass(w.category, discovery.PackWarning)]
    assert any("'acme-observer:observer' failed, and the run goes on" in text for text in said), said
    assert bq.verify(blob, x).ok


def test_it_adds_a_command_and_is_listed(
    outside_wheels: list[Path], once: Callable[[str, Callable[[Path], None]], Path], tmp_path: Path
) -> None:
    packages = once("outside-site", lambda site: pytest.fail("the fixture `outside` made it")) / "packages"
    log = tmp_path / "runs.jsonl"
    np.save(tmp_path / "x.npy", np.sin(np.arange(9000) / 40).astype(np.float32))

    def briquette(*arguments: str, **more: str) -> str:
        env = {**os.environ, "PYTHONPATH": str(packages), "ACME_OBSERVER_LOG": str(log), **more}
        command = [sys.executable, "-m", "briquette_cli.main", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    briquette("compress", "x.npy", "--eb", "1e-3", "--target", "numpy")
    assert briquette("runs", str(log)).split() == ["plan", "1", "run", "1"]
    assert "runs" in briquette("--help")
    packs = {p["distribution"]: p for p in json.loads(briquette("packs", "--json"))["packs"]}
    assert (packs["acme-observer"]["state"], packs["acme-observer"]["names"]["plugins"]) == ("loaded", ["observer"])
    log.unlink()
    briquette("compress", "x.npy", "--eb", "1e-3", "--target", "numpy", "--force", BRIQUETTE_DISABLE_PACKS="acme-observer")
    assert not log.exists()

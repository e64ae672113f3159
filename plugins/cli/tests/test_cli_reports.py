"""Listings, plans, bench, demo and the cache."""

from __future__ import annotations

import json

import click
import numpy as np
import pytest

import briquette as bq
from briquette import hooks

PRESETS = {"fast", "planes", "zigzag"}


def test_presets(run, run_json):
    listed = {p["name"]: p for p in run_json("presets")["presets"]}
    assert listed.keys() >= PRESETS
    assert listed["fast"]["stages"] == ["linear-quantizer", "lorenzo-1d", "plain-rate"]
    assert "not its file format" in listed["fast"]["description"]
    text = run("presets", "planes").stdout
    assert bq.Pipeline.from_toml(text) == bq.Pipeline.from_preset("planes")
    assert "planes" in run("presets").stdout


def test_stages(run, run_json):
    listed = {s["name"]: s for s in run_json("stages")["stages"]}
    lorenzo = listed["lorenzo-1d"]
    assert (lorenzo["role"], lorenzo["pack"], lorenzo["span"]) == ("region-local", "briquette-lorenzo", 256)
    assert lorenzo["parameters"]["region"] == 256
    assert (lorenzo["dtypes"], lorenzo["targets"][0]) == (["int16", "int32", "int64", "uint16", "uint32", "uint64"], "numpy")
    assert "host" in lorenzo["targets"]
    assert listed["linear-quantizer"]["outputs"] == ["codes", "outliers"]
    assert listed["linear-quantizer"]["dtypes"] == ["bfloat16", "float16", "float32", "float64"]
    assert listed["difference"]["targets"] == ["numpy"]  # a NumPy form only
    assert listed["adaptive-lorenzo"]["targets"] == lorenzo["targets"]  # with a coder, which a selector needs
    assert "plain-rate" in run("stages").stdout


def test_targets(run, run_json):
    listed = {t["name"]: t for t in run_json("targets")["targets"]}
    assert listed["numpy"]["unavailable"] is None
    assert "host" in listed
    assert sum(t["default"] for t in listed.values()) == 1
    assert "numpy" in run("targets").stdout


@pytest.mark.parametrize("command", ["stages", "targets", "packs"])
def test_tables_are_as_wide_as_columns_says(run, monkeypatch, command):
    wide = run(command).stdout
    monkeypatch.setenv("COLUMNS", "70")
    narrow = run(command).stdout
    assert max(map(len, narrow.splitlines())) <= 70 < max(map(len, wide.splitlines()))
    assert len(narrow.splitlines()) > len(wide.splitlines())


def test_packs(run, run_json):
    listed = {p["distribution"]: p for p in run_json("packs")["packs"]}
    assert listed["briquette-bitpack"]["state"] == "loaded"
    assert "adaptive-bitplane" in listed["briquette-bitpack"]["names"]["stages"]
    assert "briquette-warp" in run("packs", "--no-load").stdout


def test_plan_says_what_explain_says(run, run_json):
    text = run("plan", "fast", "--target", "numpy", "--shape", "100x100").stdout
    assert text.rstrip("\n") == bq.Pipeline.from_preset("fast").plan("float32", "numpy").explain(10_000)
    facts = run_json("plan", "fast", "--target", "numpy", "--dtype", "float64", "--shape", "10")
    assert facts["dtype"] == "float64"
    assert facts["compress"]["launches"] == 0
    assert facts["decompress"]["steps"][0]["kind"] == "numpy"
    assert facts["compress"]["peak_stream_bytes"] > 0


def test_plan_on_host_fuses_both_ways(run_json):
    if {t["name"]: t for t in run_json("targets")["targets"]}["host"]["unavailable"]:
        pytest.skip("no C++ compiler")
    facts = run_json("plan", "zigzag", "--target", "host")
    chain = ["linear-quantizer", "lorenzo-1d", "zigzag", "adaptive-bitplane"]
    for way in ("compress", "decompress"):
        assert facts[way]["groups"] == [chain]
        assert facts[way]["launches"] == 1
    assert run_json("plan", "zigzag", "--target", "host", "--fusion", "off")["compress"]["launches"] == 4


def test_bench_compares(run, run_json, npy):
    facts = run_json(
        "bench", npy, "--target", "numpy", "--pipeline", "fast", "--pipeline", "planes", "--repeat", 2, "--eb", "1e-3"
    )
    (report,) = facts["inputs"]
    assert [(r["pipeline"], r["target"]) for r in report["runs"]] == [("fast", "numpy"), ("planes", "numpy")]
    for r in report["runs"]:
        assert r["ratio"] == pytest.approx(8000 / r["archive_bytes"])
        assert r["compress_mb_per_s"] == pytest.approx(8000 / r["compress_seconds"] / 1e6)
        assert r["outliers"] == 2
    for check in report["checks"].values():
        assert check["bound_kept"]
        assert check["identical"]
        assert 0 < check["largest_error"] <= check["eb"]
    text = run("bench", "--size", "0.1", "--target", "numpy", "--pipeline", "fast", "--repeat", 1).stdout
    assert "range-relative 1e-3" in text
    assert "bound kept" in text


def test_bench_shows_what_fusion_gives(run_json, npy):
    if {t["name"]: t for t in run_json("targets")["targets"]}["host"]["unavailable"]:
        pytest.skip("no C++ compiler")
    facts = run_json("bench", npy, "--pipeline", "fast", "--target", "numpy", "--target", "host", "--repeat", 3)
    (report,) = facts["inputs"]
    assert [(r["target"], r["fusion"]) for r in report["runs"]] == [("numpy", "auto"), ("host", "off"), ("host", "auto")]
    staged, fused = report["runs"][1:]
    assert (staged["launches"]["compress"], fused["launches"]["compress"]) == (3, 1)
    assert staged["speedup_over_staged"] is None
    assert fused["speedup_over_staged"]["compress"] == pytest.approx(staged["compress_seconds"] / fused["compress_seconds"])
    assert report["checks"]["fast"]["identical"]


def test_tune_shows_what_it_measured_and_remembers_it(run, run_json, npy, tmp_path, monkeypatch):
    if {t["name"]: t for t in run_json("targets")["targets"]}["host"]["unavailable"]:
        pytest.skip("no C++ compiler")
    kernels = run_json("cache", "info")
    monkeypatch.setenv("BRIQUETTE_CACHE_SHARED_DIR", kernels["directory"])  # compiled before, by other tests
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "own"))
    report = run_json("tune", npy, "--target", "host", "--threads", 1)
    assert report["target"] == "host"
    assert [choice["direction"] for choice in report["choices"]] == ["forward", "inverse"]
    for choice in report["choices"]:
        assert choice["default"] == "lane 256, grain 1"
        assert set(choice["seconds"]) == {f"lane 256, grain {grain}" for grain in (1, 2, 4)}
        assert choice["chosen"] in choice["seconds"]
        assert choice["gain"] == pytest.approx(choice["seconds"][choice["default"]] / choice["seconds"][choice["chosen"]])
        assert choice["kept"]
    assert run_json("cache", "info")["entries"] >= 2
    text = run("tune", npy, "--target", "host").stdout
    assert text.count("<-") == 2
    assert "no group has a choice" in run("tune", npy, "--target", "numpy").stdout


def test_bench_says_when_contenders_disagree(run, npy, monkeypatch):
    from briquette_cli import bench

    original = bench.race

    def tampered(*args, **kwargs):
        timings = original(*args, **kwargs)
        timings[1].archive = timings[1].archive[:-1] + b"?"
        return timings

    monkeypatch.setattr(bench, "race", tampered)
    result = run(
        "bench", npy, "--target", "numpy", "--pipeline", "fast", "--fusion", "off", "--fusion", "auto", "--repeat", 1, code=1
    )
    assert "DIFFERENT BYTES" in result.stdout


def test_the_synthetic_field_is_smooth_and_the_same_every_time():
    from briquette_cli.bench import smooth_field

    field = smooth_field(0.2)
    assert field.shape == (37, 37, 37)
    assert field.dtype == np.float32
    assert np.array_equal(field, smooth_field(0.2))
    assert np.abs(np.diff(field, axis=-1)).mean() < 0.5 * field.std()  # white noise has 1.13


def test_demo(run, tmp_path):
    result = run("demo", "--out", tmp_path / "out", "--target", "numpy", "--repeat", 1, "--json")
    facts = json.loads(result.stdout)
    assert {p["preset"] for p in facts["presets"]} >= PRESETS
    exact = {p["preset"] for p in facts["presets"] if p["largest_error"] == 0}
    assert exact == {"lossless"}
    for p in facts["presets"]:
        assert p["bound_kept"]
        assert p["largest_error"] <= p["eb"] == facts["bound"]["absolute"]
        assert p["ratio"] > 2
        assert p["preset"] in exact or 50 < p["psnr"] < 80
    picture = (tmp_path / "out" / "demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 20_000 < len(picture) < 200_000


def test_cache(run_json, run, tmp_path, monkeypatch):
    monkeypatch.setenv("BRIQUETTE_CACHE_DIR", str(tmp_path / "cache"))
    from briquette.cache import Cache, cache_key

    assert run_json("cache", "info")["entries"] == 0
    Cache.from_environment().put(cache_key({"a": "b"}), b"code")
    facts = run_json("cache", "info")
    assert (facts["entries"], facts["directory"]) == (1, str(tmp_path / "cache"))
    assert "1, " in run("cache", "info").stdout
    assert run_json("cache", "clean")["freed_bytes"] == facts["bytes"]
    assert run_json("cache", "info")["entries"] == 0


def test_cache_warm(run_json, run):
    facts = run_json("cache", "warm", "fast", "--dtype", "float32", "--target", "numpy")
    assert [(c["pipeline"], c["dtype"]) for c in facts["compiled"]] == [("fast", "float32")]
    assert "nothing to compile" in run("cache", "warm", "--target", "numpy").stdout


class _Plugin:
    def __init__(self, *answers):
        self.answers = answers

    @hooks.hookimpl
    def cli_commands(self):
        for answer in self.answers:
            if isinstance(answer, BaseException):
                raise answer
        return list(self.answers)


@pytest.fixture
def plugin():
    added = []

    def add(name, *answers):
        hooks.register(_Plugin(*answers), name)
        added.append(name)

    yield add
    for name in added:
        hooks.unregister(name)


def test_commands_of_plugins(run, plugin):
    @click.command(help="Say hello.")
    def hello():
        click.echo("hello from a plugin")

    plugin("good", hello)
    assert "Say hello." in run("--help").stdout
    assert run("hello").stdout == "hello from a plugin\n"


def test_broken_plugins_stop_nothing(run, plugin):
    @click.command(name="info")
    def usurper():
        click.echo("usurped")

    plugin("raises", SystemExit(7))
    plugin("usurps", usurper)
    plugin("odd", "not a command")
    result = run("--help")
    assert "compress" in result.stdout
    assert "'info' is left out" in result.stderr
    assert "usurped" not in run("info", "--help").stdout

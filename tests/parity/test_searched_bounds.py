"""`target_ratio` and `target_psnr`: met on the whole array, or refused with bounds that show why; reports are checked too."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import briquette as bq
from briquette import hooks
from briquette.errors import Unreachable, UsageError
from briquette.search import SAMPLE, WHOLE_RUNS, stratified

GOALS = [("target_ratio", value) for value in (4.0, 10.0, 40.0)] + [("target_psnr", value) for value in (30.0, 60.0, 90.0, 140.0)]
WAYS = (("numpy", "auto"), ("host", "auto"), ("host", "off"))


def psnr(x: NDArray[Any], back: NDArray[Any]) -> float:
    """20 log10(range) - 10 log10(mean squared error), over the finite values."""
    finite = np.isfinite(x)
    one, other = x[finite].astype(np.float64), back[finite].astype(np.float64)
    mean = float(np.mean((one - other) ** 2))
    return 20 * math.log10(one.max() - one.min()) - 10 * math.log10(mean) if mean else math.inf


def measured(kind: str, x: NDArray[Any], blob: Any) -> float:
    return x.nbytes / len(blob) if kind == "target_ratio" else psnr(x, bq.decompress(blob))


def off(kind: str, wanted: float, achieved: float) -> bool:
    """Whether the tolerance is missed, as the documentation words it."""
    return abs(achieved / wanted - 1) > 0.03 if kind == "target_ratio" else abs(achieved - wanted) > 0.5


def assert_refused(error: Unreachable, kind: str, wanted: float, x: NDArray[Any], mode: str, **options: Any) -> None:
    """The bounds that the error names give what it says, which misses the goal; two of them have the goal between them."""
    assert 1 <= len(error.nearest) <= 2
    for eb, claimed in error.nearest:
        achieved = measured(kind, x, bq.compress(x, eb, mode, **options))
        assert achieved == pytest.approx(claimed, rel=1e-9)
        assert off(kind, wanted, achieved)
    if len(error.nearest) == 2:
        low, high = sorted(claimed for _, claimed in error.nearest)
        assert low < wanted < high


@pytest.mark.parametrize(("kind", "wanted"), GOALS)
@pytest.mark.parametrize("mode", ["abs", "rel"])
def test_real_fields_meet_the_goal_or_show_why_not(corpus_field: Path, kind: str, wanted: float, mode: str) -> None:
    x = np.load(corpus_field)
    try:
        result = bq.compress_run(x, mode=mode, **{kind: wanted})
    except Unreachable as error:
        assert_refused(error, kind, wanted, x, mode)
        return
    assert result.search is not None
    achieved = measured(kind, x, result.archive)
    assert not off(kind, wanted, achieved)
    assert result.search.achieved == pytest.approx(achieved, rel=1e-9)
    assert bq.verify(result.archive, x).ok
    bound = bq.info(result.archive)["bound"]
    assert bound == {"mode": mode, "eb": result.search.bound.eb}
    assert result.archive == bq.compress(x, result.search.bound.eb, mode)


@pytest.mark.parametrize("preset", ["planes", "zigzag"])
@pytest.mark.parametrize(("kind", "wanted"), [("target_ratio", 12.0), ("target_psnr", 70.0)])
def test_other_presets(bundled_field: Path, preset: str, kind: str, wanted: float) -> None:
    x = np.load(bundled_field)
    try:
        blob = bq.compress(x, pipeline=preset, **{kind: wanted})
    except Unreachable as error:
        assert_refused(error, kind, wanted, x, "abs", pipeline=preset)
    else:
        assert not off(kind, wanted, measured(kind, x, blob))


@pytest.mark.parametrize(("kind", "wanted"), [("target_ratio", 9.0), ("target_psnr", 66.0)])
def test_every_target_finds_the_same_archive(bundled_field: Path, kind: str, wanted: float) -> None:
    x = np.load(bundled_field)
    made = {bytes(bq.compress(x, target=target, fusion=fusion, **{kind: wanted})) for target, fusion in WAYS}
    assert len(made) == 1


def smooth(count: int) -> NDArray[np.float32]:
    at = np.arange(count) / 5000.0
    noise = np.random.default_rng(5).normal(0, 1e-3, count)
    return (np.sin(at) * np.cos(at / 7.1) + noise).astype(np.float32)


@pytest.mark.parametrize(("kind", "wanted"), [("target_ratio", 6.0), ("target_psnr", 50.0)])
def test_a_large_array_is_sampled(kind: str, wanted: float) -> None:
    x = smooth(4 * SAMPLE + 1001)
    result = bq.compress_run(x, **{kind: wanted})
    assert result.search is not None
    assert not off(kind, wanted, measured(kind, x, result.archive))
    assert SAMPLE // 2 < result.search.sample_elements <= SAMPLE
    assert result.search.whole_runs <= 2


@pytest.mark.parametrize(("kind", "wanted"), [("target_ratio", 6.0), ("target_psnr", 50.0)])
def test_a_sample_that_misleads_is_corrected_on_the_whole(kind: str, wanted: float) -> None:
    chunk = 8192
    x = smooth(4 * SAMPLE)
    marks = np.repeat(np.arange(x.size // chunk), chunk)
    sampled = np.unique(stratified(marks, chunk))
    assert sampled.size == SAMPLE // chunk
    quiet = np.isin(marks, sampled)
    x[quiet] *= np.float32(1e-3)  # what is sampled is nothing like the rest
    result = bq.compress_run(x, **{kind: wanted})
    assert result.search is not None
    assert not off(kind, wanted, measured(kind, x, result.archive))
    assert 1 < result.search.whole_runs <= WHOLE_RUNS


def test_a_sample_without_finite_values() -> None:
    chunk = 8192
    x = smooth(4 * SAMPLE)
    marks = np.repeat(np.arange(x.size // chunk), chunk)
    x[np.isin(marks, np.unique(stratified(marks, chunk)))] = np.nan
    assert not off("target_psnr", 50.0, measured("target_psnr", x, bq.compress(x, target_psnr=50.0)))


@pytest.mark.parametrize(
    "x", [np.full(5000, 7.5), np.full(100, np.nan), np.empty(0), np.array(3.0)], ids=["7.5", "nan", "empty", "0-d"]
)
@pytest.mark.parametrize("kind", ["target_ratio", "target_psnr"])
def test_arrays_without_a_range_are_refused(x: NDArray[Any], kind: str) -> None:
    with pytest.raises(Unreachable, match=r"is constant|has no finite values"):
        bq.compress(x, **{kind: 20.0})


def test_beyond_both_ends() -> None:
    x = smooth(20_000)
    for kind, wanted, what in (
        ("target_ratio", 1e6, "ask for no more"),
        ("target_ratio", 0.2, "ask for no less"),
        ("target_psnr", 0.01, "ask for no less"),
        ("target_psnr", 300.0, "gives no error at all"),
    ):
        with pytest.raises(Unreachable, match=what) as caught:
            bq.compress(x, **{kind: wanted})
        assert_refused(caught.value, kind, wanted, x, "abs")


def test_a_jump_over_the_goal_is_refused_with_both_its_ends(repo_root: Path) -> None:
    x = np.load(repo_root / "tests/data/groundwater_conc_mnw_f32.npy")  # a third of it is one value: its codes shrink at once
    with pytest.raises(Unreachable, match="nothing nearer") as caught:
        bq.compress(x, target_ratio=12.0, pipeline="planes")
    assert len(caught.value.nearest) == 2
    assert_refused(caught.value, "target_ratio", 12.0, x, "abs", pipeline="planes")


@pytest.mark.parametrize("x", [np.array([0.0, 5e-324] * 5000), np.array([-1.7e308, 1.7e308, 3.0] * 5000)], ids=["tiny", "huge"])
@pytest.mark.parametrize(("kind", "wanted"), GOALS)
def test_extreme_ranges_end_in_an_archive_or_a_refusal(x: NDArray[Any], kind: str, wanted: float) -> None:
    try:
        blob = bq.compress(x, **{kind: wanted})
    except Unreachable:
        return
    assert bq.verify(blob, x).ok


def test_forms_of_input_and_output() -> None:
    x = smooth(60_000).reshape(200, 300)
    expected = bq.compress(x, target_ratio=8)
    out = np.empty(bq.max_archive_bytes(x), np.uint8)
    assert bytes(bq.compress(x, target_ratio=8, out=out)) == expected
    for form in (np.asfortranarray(x), np.array(x, copy=True), np.repeat(x, 2, axis=1)[:, ::2]):
        assert bq.compress(form, target_ratio=8) == expected
    swapped = x.astype(">f4")
    result = bq.compress_run(swapped, target_psnr=60)
    assert result.search is not None
    back = bq.decompress(result.archive)
    assert back.dtype == swapped.dtype
    assert abs(psnr(x, back.astype(np.float32)) - 60) <= 0.5
    pipe = bq.Pipeline.from_preset("fast")
    assert pipe.compress(x, target_ratio=8) == expected
    assert pipe.run(x, target_ratio=8).search == bq.compress_run(x, target_ratio=8).search


def test_a_pipeline_s_own_bound_gives_way() -> None:
    x = smooth(30_000)
    pipe = bq.Pipeline.from_toml(bq.Pipeline.from_preset("fast").to_toml() + "\n[bound]\neb = 1e-3\n")
    assert not off("target_ratio", 5.0, measured("target_ratio", x, pipe.compress(x, target_ratio=5.0)))


def test_trials_are_no_runs_for_hooks_and_results_say_what_was_tried() -> None:
    class Watch:
        seen: list[dict[str, Any]] = []  # noqa: RUF012

        @hooks.hookimpl
        def run_finished(self, direction: str, record: Any) -> None:
            if direction == "forward":
                self.seen.append(record.results[""])

    watch = Watch()
    hooks.register(watch, "watch-search")
    try:
        result = bq.compress_run(smooth(30_000), target_ratio=5)
    finally:
        hooks.unregister("watch-search")
    assert len(watch.seen) == 1
    assert result.search is not None
    said = {name: watch.seen[0][name] for name in ("search", "achieved", "sample_runs", "whole_runs")}
    search = result.search
    assert said == {
        "search": "ratio 5.0",
        "achieved": search.achieved,
        "sample_runs": search.sample_runs,
        "whole_runs": search.whole_runs,
    }


@pytest.mark.parametrize("kind", ["target_ratio", "target_psnr"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "many", [], 10**400], ids=range(8))
def test_goals_that_are_no_positive_numbers(kind: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{kind}=.*must be a finite number greater than zero"):
        bq.compress(smooth(100), **{kind: value})


def test_what_cannot_be_combined() -> None:
    x = smooth(100)
    for given in ({"eb": 1e-3, "target_ratio": 5}, {"eb": 1e-3, "target_psnr": 5}, {"target_ratio": 5, "target_psnr": 5}):
        with pytest.raises(UsageError, match="give one of eb=, target_ratio= and target_psnr="):
            bq.compress(x, **given)
    with pytest.raises(UsageError, match="mode 'most' is unknown"):
        bq.compress(x, mode="most", target_ratio=5)
    with pytest.raises(UsageError, match="this one is lossless"):
        bq.compress(np.arange(100), pipeline=bq.chain("lorenzo-1d", "plain-rate"), target_ratio=5)
    with pytest.raises(UsageError, match="means nothing for bool"):
        bq.compress(np.arange(100) > 3, target_ratio=5)

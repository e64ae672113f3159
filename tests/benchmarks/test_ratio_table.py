"""The ratio table: its figures are those of archives made here, and an archive that misses its bound ends it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import briquette as bq


@pytest.fixture(scope="module")
def ratios(repo_root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("ratios", repo_root / "tests" / "benchmarks" / "ratios.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    for name in ("one", "two"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=30_000).cumsum().astype(np.float32))
    return tmp_path


def test_the_table_holds_the_ratios_of_archives(ratios: ModuleType, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{ratios.BEGIN}\nold\n{ratios.END}\nafter\n")
    command = [str(folder), "--bounds", "1e-2", "1e-4", "--presets", "fast", "planes", "--into", str(page)]
    ratios.main(command)
    text = page.read_text()
    ratios.main(command)
    assert page.read_text() == text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    total = {}
    for name in ("one", "two"):
        x = np.load(folder / f"{name}.npy")
        for eb, words in ((1e-2, "1e-2"), (1e-4, "1e-4")):
            sizes = [len(bq.compress(x, eb, "rel", pipeline=preset)) for preset in ("fast", "planes")]
            assert f"| {name} | {words} | {x.nbytes / sizes[0]:.2f} | {x.nbytes / sizes[1]:.2f} |\n" in text
            total[words] = np.add(total.get(words, (0, 0)), sizes)
    both = 2 * x.nbytes / total["1e-4"]
    assert f"| **all files together** | 1e-4 | {both[0]:.2f} | {both[1]:.2f} |\n" in text


def test_a_missed_bound_ends_it(ratios: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bq, "verify", lambda archive, x: SimpleNamespace(ok=False))
    with pytest.raises(SystemExit, match="does not keep its bound"):
        ratios.main([str(folder), "--presets", "fast"])


def test_what_is_wrong_with_a_folder_or_a_page_is_said(ratios: ModuleType, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(SystemExit, match="has no place for the table"):
        ratios.main([str(folder), "--bounds", "1e-2", "--presets", "fast", "--into", str(page)])
    (folder / "README.md").write_text("| `one.npy` | x |\n| `three.npy` | x |\n")
    with pytest.raises(SystemExit, match=r"not there: three\.npy"):
        ratios.main([str(folder)])
    with pytest.raises(SystemExit, match=r"no \.npy file"):
        ratios.main([str(tmp_path / "empty")])

"""The real fields are what their lists say: what other tests show on them rests on that."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

ROW = re.compile(r"^\| `(?P<file>[^`]+\.npy)` \| (?P<dtype>\w+) \| (?P<shape>[0-9x]+) \|", re.MULTILINE)


def listed(listing: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    found = ROW.finditer(listing.read_text(encoding="utf-8"))
    return {row["file"]: (row["dtype"], tuple(map(int, row["shape"].split("x")))) for row in found}


def test_bundled_fields_are_listed_with_their_dtype_and_shape(repo_root: Path) -> None:
    rows = listed(repo_root / "tests/data/README.md")
    assert set(rows) == {path.name for path in (repo_root / "tests/data").glob("*.npy")}
    for name, (dtype, shape) in rows.items():
        field = np.load(repo_root / "tests/data" / name)
        assert (field.dtype.name, field.shape) == (dtype, shape), name


def test_bundled_fields_are_a_spread(bundled_fields: tuple[Path, ...]) -> None:
    fields = {path.stem: np.load(path) for path in bundled_fields}
    assert len(fields) == 5
    assert {field.dtype.name for field in fields.values()} == {"float32", "float64"}
    assert np.isnan(fields["ocean_sst_nemo_f32"]).sum() == 53617
    assert np.isnan(fields["solar_hmi_continuum_f64"]).sum() == 2430
    water = fields["groundwater_conc_mnw_f32"]
    assert (water == -999).any()
    assert ((water != 0) & (np.abs(water) < np.finfo(np.float32).tiny)).any()
    gravity = fields["geophysics_gravity_asia_f64"]
    assert gravity.min() > 200 * np.ptp(gravity)
    assert sum(path.stat().st_size for path in bundled_fields) < 4_000_000


def test_bundled_fields_bring_their_licences(repo_root: Path) -> None:
    notices = (repo_root / "tests/data/LICENSES.txt").read_text(encoding="utf-8")
    assert all(path.name in notices for path in (repo_root / "tests/data").glob("*.npy"))
    for field in (repo_root / "plugins/cli/src/briquette_cli/data").glob("*.npy"):
        assert field.name in field.with_name(f"LICENSE-{field.stem}.txt").read_text(encoding="utf-8")


def test_corpus_field_is_what_the_corpus_lists(corpus_field: Path) -> None:
    field = np.load(corpus_field, mmap_mode="r")
    assert (field.dtype.name, field.shape) == listed(corpus_field.parent / "README.md")[corpus_field.name]
    assert field.flags.c_contiguous

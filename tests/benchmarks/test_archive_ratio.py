"""The preset `archive` beside the best of the fused coders, on small versions of the fields of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest
from field_module import load_fields

import briquette as bq

#: field -> a shape of it, and the least ratio of `archive` as a multiple of the best of the others'
FIELDS = {
    "turb3d": ((96, 128, 128), 1.08),
    "temp3d": ((32, 256, 256), 1.08),
    "particles1d": ((2_000_000,), 1.08),
    "density3d": ((128, 128, 128), 0.95),
    "cloud2d": ((1200, 1800), 0.95),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIELDS)
def test_the_ratio_is_the_best(name: str, shared_dir: Path) -> None:
    module = shared_dir / "bench" / "fields.py"
    if not module.is_file():
        pytest.skip(f"{module} is not there")
    shape, least = FIELDS[name]
    x = load_fields(module).make(name, shape)
    sizes = {preset: len(bq.compress(x, 1e-3, "rel", pipeline=preset)) for preset in ("chunked", "adaptive")}
    data = bq.compress(x, 1e-3, "rel", pipeline="archive")
    assert bq.verify(data, x).ok
    assert len(data) * least <= min(sizes.values()), {label: x.nbytes / size for label, size in sizes.items()}

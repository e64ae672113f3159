"""Cases H and I: the same bytes every time, and archives that need nothing but the packs they name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import casekit
import numpy as np
import pytest
from casekit import FUSED, PRESETS, REFERENCE, STAGED

import briquette as bq

MAKE = """
import hashlib, sys
import numpy as np
import briquette as bq
x = np.sin(np.arange(50_000) / 30).astype("float32")
x[7::997] = np.nan
for preset in ("fast", "planes", "zigzag", "adaptive"):
    for target in sys.argv[1:]:
        print(hashlib.sha256(bq.compress(x, 1e-3, "rel", pipeline=preset, target=target)).hexdigest())
"""

DECODE = """
import sys
import numpy as np
import briquette as bq
blob = open(sys.argv[1], "rb").read()
y = bq.decompress(blob)
np.save(sys.argv[2], y)
unwanted = [m for m in sys.modules if m.partition(".")[0] in sys.argv[3].split(",")]
assert not unwanted, unwanted
"""

#: the packs that an archive of each preset names
NAMED = {
    "fast": {"briquette-quantize", "briquette-lorenzo", "briquette-bitpack"},
    "planes": {"briquette-quantize", "briquette-lorenzo", "briquette-bitpack"},
    "zigzag": {"briquette-quantize", "briquette-lorenzo", "briquette-bitpack", "briquette-transforms"},
    "adaptive": {"briquette-quantize", "briquette-lorenzo", "briquette-bitpack"},
}


def field() -> np.ndarray:
    x = np.sin(np.arange(50_000) / 30).astype(np.float32)
    x[7::997] = np.nan
    return x


def test_h1_one_array_twenty_times_on_1_2_and_16_threads() -> None:
    x = field()
    for preset in PRESETS:
        made = {
            hashlib.sha256(bq.compress(x, 1e-3, "rel", pipeline=preset, target=w.target, fusion=w.fusion, threads=t)).hexdigest()
            for w in casekit.ways((REFERENCE, FUSED, STAGED))
            for t in (1, 2, 16)
            for _ in range(20 if w == FUSED else 3)
        }
        assert len(made) == 1


def test_h1_processes_with_different_hash_seeds(tmp_path: Path) -> None:
    targets = [way.target for way in casekit.ways((REFERENCE, FUSED))]
    runs = {casekit.python(MAKE, tmp_path, *targets, env={"PYTHONHASHSEED": seed}).stdout for seed in ("0", "1", "4242")}
    assert len(runs) == 1
    here = [hashlib.sha256(bq.compress(field(), 1e-3, "rel", pipeline=preset)).hexdigest() for preset in PRESETS for _ in targets]
    assert runs.pop().split() == here


@pytest.mark.parametrize("preset", PRESETS)
def test_i2_bytes_alone_in_a_fresh_process_with_the_named_packs_only(preset: str, tmp_path: Path) -> None:
    x = field()
    blob = bq.compress(x, 1e-3, "rel", pipeline=preset)
    named = {entry["stage"].partition(":")[0] for entry in bq.info(blob)["stages"]}
    assert named == NAMED[preset]
    every = {pack.distribution for pack in bq_packs()}
    others = sorted(every - named)
    elsewhere = tmp_path / "another place"
    elsewhere.mkdir()
    (tmp_path / "field.bq").write_bytes(blob)
    casekit.python(
        DECODE,
        elsewhere,
        tmp_path / "field.bq",
        tmp_path / "back.npy",
        ",".join(name.replace("-", "_") for name in others),
        env={"BRIQUETTE_DISABLE_PACKS": ",".join(others), "CUDA_VISIBLE_DEVICES": ""},
    )
    back = np.load(tmp_path / "back.npy")
    assert np.array_equal(casekit.bits(back), casekit.bits(bq.decompress(blob)))
    casekit.assert_bound(x, back, float(casekit.Fraction(1e-3) * casekit.exact_range(x)))


def bq_packs() -> list:  # type: ignore[type-arg]
    from briquette import discovery

    return discovery.registry().packs()

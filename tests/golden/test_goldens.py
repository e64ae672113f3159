"""Golden archives decode to what they were made of, for ever; today's writer still makes their bytes; case I1.

These tests write nothing: an archive that is listed and missing fails, and so does one that lies there unlisted.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import struct
from typing import Any

import numpy as np
import pytest
from golden_recipes import ARCHIVES, FORMS, RECIPES, manifest

import briquette as bq
from briquette import discovery
from briquette.archive import Archive
from briquette.errors import ArchiveError, ArchiveVersionError
from briquette_conformance.resealing import edit_header, reseal

ENTRIES = manifest()
WAYS = [("numpy", "auto"), ("host", "auto"), ("host", "off")]
CODED = [name for name, entry in ENTRIES.items() if not entry["raw"]]
SAMPLES = ("fast-float32", "zigzag-float64", "raw-float32")


def sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


@functools.lru_cache(maxsize=64)
def golden(name: str) -> bytes:
    path = ARCHIVES / f"{name}.brq"
    assert path.is_file(), f"the golden archive {path.name} is listed and missing"
    return path.read_bytes()


@pytest.fixture(params=WAYS, ids="-".join)
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    target, fusion = request.param
    reason = discovery.registry().target(target).unavailable() if target != "numpy" else None
    if reason:
        pytest.skip(f"the target {target} cannot run here: {reason}")
    return target, fusion


def test_the_list_is_whole() -> None:
    assert set(ENTRIES) == set(RECIPES)
    assert {path.stem for path in ARCHIVES.glob("*.brq")} == set(ENTRIES)
    presets = ("fast", "planes", "zigzag", "adaptive", "archive", "tiled", "tiled-outlier", "tiled-fixed")
    assert {f"{preset}-{dtype}" for preset in presets for dtype in ("float32", "float64")} <= set(CODED)
    assert sum(path.stat().st_size for path in ARCHIVES.iterdir()) < 1_000_000


@pytest.mark.parametrize("name", ENTRIES)
def test_archive_is_the_one_recorded(name: str) -> None:
    entry = ENTRIES[name]
    assert (len(golden(name)), sha256(golden(name))) == (entry["archive_bytes"], entry["archive_sha256"])
    archive = Archive.open(golden(name))
    assert (archive.prologue.minor, archive.prologue.oldest_minor) == (0, 0)
    assert archive.header.raw is entry["raw"]


@pytest.mark.parametrize("name", ENTRIES)
def test_archive_decodes_to_the_recorded_array(name: str, way: tuple[str, str]) -> None:
    entry = ENTRIES[name]
    out = np.empty(entry["shape"], entry["dtype"])
    out.reshape(-1).view(np.uint8)[:] = 0xA5
    back = bq.decompress(golden(name), target=way[0], fusion=way[1], out=out)
    assert (back.dtype.str, list(back.shape)) == (entry["dtype"], entry["shape"])
    assert sha256(back) == entry["output_sha256"]


@pytest.mark.parametrize("name", ENTRIES)
def test_input_is_the_recorded_one_and_within_the_bound(name: str) -> None:
    field = RECIPES[name].field()
    assert sha256(np.ascontiguousarray(field)) == ENTRIES[name]["input_sha256"]
    assert bq.verify(golden(name), field, target="numpy").ok


@pytest.mark.parametrize("name", ENTRIES)
def test_todays_writer_makes_the_same_bytes(name: str, way: tuple[str, str]) -> None:
    """But for the versions of core and packs, which each archive states."""
    then = Archive.open(golden(name)).header

    def as_written_then(fields: dict[str, Any]) -> None:
        fields["w"] = then.core_version
        for stage, old in zip(fields.get("p", []), then.stages, strict=True):
            stage[3] = old.pack_version

    today = RECIPES[name].compress(*way)
    assert edit_header(today, as_written_then) == golden(name)


@pytest.mark.parametrize("name", ["outlier-forms-float32", "outlier-forms-float64"])
def test_outlier_forms_are_all_there(name: str) -> None:
    archive = Archive.open(golden(name))
    side = archive.chunked(1).value
    heads = [int(side.words[at]) for at, size in zip(np.cumsum(side.sizes) - side.sizes, side.sizes, strict=True) if size]
    assert side.sizes[-1] == 0
    assert [(head >> 28 & 3, head >> 30) for head in heads] == list(FORMS)
    assert [head & 0x0FFFFFFF for head in heads] == [9, 9, 900, 900, 500, 500]


def test_fan_out_has_edges_and_three_sinks() -> None:
    archive = Archive.open(golden("fan-out-float32"))
    assert archive.header.edges
    assert len(archive.segments) == 3


# -- versions (case I1) ------------------------------------------------------------------------------------


def stated(blob: bytes, at: int, form: str, value: int) -> bytes:
    """Return the archive with one field of its prologue changed, checksums made right."""
    out = bytearray(blob)
    struct.pack_into(form, out, at, value)
    return reseal(out)


def newer_minor(blob: bytes, minor: int = 7) -> bytes:
    return stated(blob, 10, "<H", minor)


@pytest.mark.parametrize("name", SAMPLES)
def test_newer_minor_decodes(name: str, way: tuple[str, str]) -> None:
    blob = newer_minor(golden(name))
    assert blob != golden(name)
    assert sha256(bq.decompress(blob, target=way[0], fusion=way[1])) == ENTRIES[name]["output_sha256"]
    assert bq.info(blob)["format"] == "1.7"


@pytest.mark.parametrize("name", SAMPLES)
def test_newer_minor_may_add_header_keys(name: str) -> None:
    def add(fields: dict[str, Any]) -> None:
        fields["z"] = "what a later version says"

    with pytest.raises(ArchiveError, match="z"):
        bq.decompress(edit_header(golden(name), add), target="numpy")
    blob = edit_header(newer_minor(golden(name)), add)
    assert sha256(bq.decompress(blob, target="numpy")) == ENTRIES[name]["output_sha256"]


@pytest.mark.parametrize("name", SAMPLES)
def test_newer_minor_that_needs_a_newer_reader_is_refused(name: str) -> None:
    blob = stated(newer_minor(golden(name)), 12, "<H", 3)
    with pytest.raises(ArchiveVersionError, match=r"needs a reader of format 1\.3.*up to 1\.0: install a newer briquette-core"):
        bq.decompress(blob)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("major", [0, 2, 65535])
def test_another_major_is_refused(name: str, major: int) -> None:
    blob = stated(golden(name), 8, "<H", major)
    for read in (bq.decompress, bq.info, bq.verify):
        with pytest.raises(ArchiveVersionError, match=rf"format version {major}\.0; this briquette reads version 1"):
            read(blob)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("bit", [1, 17, 63])
def test_an_unknown_feature_is_refused_by_name(name: str, bit: int) -> None:
    features = int.from_bytes(golden(name)[16:24], "little") | 1 << bit
    for minor in (0, 7):
        blob = stated(newer_minor(golden(name), minor), 16, "<Q", features)
        with pytest.raises(ArchiveVersionError, match=rf"features this briquette does not know \(bits {bit}\)"):
            bq.decompress(blob)


@pytest.mark.parametrize("name", CODED)
def test_stages_of_a_newer_format_version_are_refused_by_name(name: str) -> None:
    def raise_version(fields: dict[str, Any]) -> None:
        fields["p"][0][2] = 99

    stage = Archive.open(golden(name)).header.stages[0].stage
    with pytest.raises(ArchiveVersionError, match=rf"(?s){stage}.*99"):
        bq.decompress(edit_header(golden(name), raise_version), target="numpy")


def test_truncated_goldens_are_refused() -> None:
    for name, share in itertools.product(SAMPLES, (0, 1, 47, 48, 200, -1)):
        with pytest.raises(ArchiveError):
            bq.decompress(golden(name)[:share], target="numpy")

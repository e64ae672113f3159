"""Element types at the edges of core: bfloat16 without ml_dtypes, truth values, archives that lie about them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import briquette as bq
from briquette.errors import ArchiveError, MissingPack
from briquette.ports import FLOAT_DTYPES, INTEGER_DTYPES, STREAM_DTYPES, PortType, carried, itemsize, numpy_dtype
from briquette_conformance import resealing as tools


def test_sizes_need_no_numpy_that_knows_the_type() -> None:
    assert FLOAT_DTYPES | INTEGER_DTYPES == STREAM_DTYPES
    for name in STREAM_DTYPES - {"bfloat16"}:
        assert itemsize(name) == PortType(name).itemsize == np.dtype(name).itemsize
    assert (itemsize("bfloat16"), itemsize("bool"), carried("bool"), carried("int8")) == (2, 1, "uint8", "int8")


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    blob = bq.compress(np.linspace(0, 1, 20_000, dtype=np.float32).astype(ml_dtypes.bfloat16), 1e-2)
    raw = bq.compress(np.ones(3, ml_dtypes.bfloat16), 1e-2)
    assert bq.info(raw)["raw"]
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for archive in (blob, raw):
        assert bq.info(archive)["dtype"] == "bfloat16"
        assert bq.info(archive)["original_bytes"] == (40_000 if archive is blob else 6)
        assert bq.verify(archive).ok
        with pytest.raises(MissingPack, match="pip install ml_dtypes") as caught:
            bq.decompress(archive)
        assert caught.value.distribution == "ml_dtypes"


def test_truth_values_come_back_as_truth_values() -> None:
    x = np.repeat(np.random.default_rng(0).random(700) < 0.5, 37).reshape(70, 370)
    for eb in (None, 1e-3, 5):
        blob = bq.compress(x, eb)
        y = bq.decompress(blob)
        assert y.dtype == np.bool_
        assert np.array_equal(x, y)
        assert bq.info(blob)["bound"] is None
    out = np.zeros(x.shape, bool)
    assert bq.decompress(blob, out=out) is out
    assert np.array_equal(x, out)
    report = bq.verify(blob, ~x)
    assert report.bound is not None
    assert report.bound.violations == x.size


def test_archives_that_decode_to_more_than_truth_values_are_refused() -> None:
    for blob in (bq.compress(np.arange(20_000).astype(np.uint8) // 9), bq.compress(np.array([0, 1, 2], np.uint8))):
        lie = tools.edit_header(bytes(blob), lambda fields: fields.update(d="bool"))
        with pytest.raises(ArchiveError, match="no truth value"):
            bq.decompress(lie)


def test_big_endian_bfloat16_is_no_header() -> None:
    pytest.importorskip("ml_dtypes")
    blob = bq.compress(np.zeros(3, numpy_dtype("bfloat16")), 1e-3)
    with pytest.raises(ArchiveError, match="byte order '>' of bfloat16"):
        bq.decompress(tools.edit_header(bytes(blob), lambda fields: fields.update(o=">")))

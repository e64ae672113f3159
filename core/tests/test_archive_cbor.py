"""The CBOR subset: one encoding a value, and a decoder that refuses everything else."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from briquette.archive import cbor
from briquette.errors import ArchiveError, UsageError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=30), max_leaves=40
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [  # RFC 8949, appendix A
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (1000000, "1a000f4240"),
        (2**64 - 1, "1bffffffffffffffff"),
        (-1, "20"),
        (-(2**64), "3bffffffffffffffff"),
        (1.1, "fb3ff199999999999a"),
        (1.0, "fb3ff0000000000000"),
        (-0.0, "fb8000000000000000"),
        (math.nan, "fb7ff8000000000000"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("\u00fc", "62c3bc"),
        ([1, [2, 3]], "8201820203"),
        ({"b": [2, 3], "a": 1}, "a26161016162820203"),
        ({"aa": 1, "b": 2}, "a261620262616101"),  # the shorter key first
    ],
)
def test_known_encodings(value: object, encoded: str) -> None:
    assert cbor.dumps(value).hex() == encoded
    assert repr(cbor.loads(bytes.fromhex(encoded))) == repr(cbor.loads(cbor.dumps(value)))


@given(VALUES)
def test_round_trip(value: object) -> None:
    back = cbor.loads(cbor.dumps(value))
    assert back == value
    assert repr(type(back)) == repr(type(value))


@given(st.binary(max_size=80))
@settings(max_examples=1000)
def test_arbitrary_bytes_decode_to_themselves_or_are_refused(data: bytes) -> None:
    try:
        value = cbor.loads(data)
    except ArchiveError:
        return
    assert cbor.dumps(value) == data


@given(VALUES, st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_encodings_decode_to_themselves_or_are_refused(value: object, at: int, byte: int) -> None:
    data = bytearray(cbor.dumps([value]))
    data[at % len(data)] = byte
    try:
        back = cbor.loads(data)
    except ArchiveError:
        return
    assert cbor.dumps(back) == data


@given(VALUES)
@settings(max_examples=50)
def test_every_truncation_is_refused(value: object) -> None:
    data = cbor.dumps(value)
    for n in range(len(data)):
        with pytest.raises(ArchiveError):
            cbor.loads(data[:n])


@pytest.mark.parametrize(
    ("encoded", "words"),
    [
        ("", "ends at byte 0"),
        ("0000", "1 bytes follow"),
        ("1817", "shortest"),
        ("1900ff", "shortest"),
        ("1a0000ffff", "shortest"),
        ("1b00000000ffffffff", "shortest"),
        ("5803010203", "shortest"),
        ("19ff", "1 bytes more"),
        ("f93c00", "eight bytes"),
        ("fa3f800000", "eight bytes"),
        ("fb7ff0000000000001", "NaN"),
        ("9fff", "indefinite"),
        ("1c", "reserved"),
        ("c000", "tag"),
        ("f7", "simple"),
        ("f820", "eight bytes"),
        ("43aabb", "reaches beyond"),
        ("62c328", "UTF-8"),
        ("a10000", "not text"),
        ("a2616100616100", "twice"),
        ("a2616200616100", "out of order"),
        ("9bffffffffffffffff00", "reaches beyond"),
        ("bbffffffffffffffff6161", "reaches beyond"),
        ("5bffffffffffffffff00", "reaches beyond"),
        ("81" * 17 + "00", "16 deep"),
    ],
)
def test_other_forms_are_refused(encoded: str, words: str) -> None:
    with pytest.raises(ArchiveError, match=words):
        cbor.loads(bytes.fromhex(encoded))


def test_nesting_up_to_the_limit() -> None:
    data = b"\x81" * cbor.MAX_DEPTH + b"\x00"
    assert cbor.dumps(cbor.loads(data)) == data


def test_a_claimed_length_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        for head in (b"\x9a\x7f\xff\xff\xff", b"\xba\x3f\xff\xff\xff", b"\x7b" + b"\x7f" * 8, b"\x5a\xff\xff\xff\xff"):
            with pytest.raises(ArchiveError):
                cbor.loads(head + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2**64, "65 bits"),
        (-(2**64) - 1, "65 bits"),
        ({1: 2}, "map key 1"),
        ("\ud800", "surrogates"),
        (1j, "complex"),
        ({"x": {1, 2}}, "set"),
    ],
)
def test_values_that_cannot_be_archived(value: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cbor.dumps(value)


def test_deep_values_cannot_be_archived() -> None:
    value: object = 0
    for _ in range(cbor.MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(UsageError, match="16 deep"):
        cbor.dumps(value)

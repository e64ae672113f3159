"""Headers that say impossible things, with checksums that are right: refused by every target, and said to be damage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hostile.archives import COUNT, sound
from hostile.campaigns import TARGETS

import briquette
from briquette.errors import ArchiveError, ArchiveVersionError, MissingPack
from briquette_conformance.resealing import edit_header

Fields = dict[str, Any]
QUANTIZER, PREDICTOR, CODER = range(3)


def state(**values: Any) -> Callable[[Fields], None]:
    """Return an edit of the quantizer's state; None removes an entry."""

    def change(fields: Fields) -> None:
        held = fields["t"]["linear-quantizer"]
        held.update(values)
        for name in [n for n, value in held.items() if value is None]:
            del held[name]

    return change


def parameter(stage: int, **values: Any) -> Callable[[Fields], None]:
    return lambda fields: fields["p"][stage][4].update(values)


def renamed(stage: int, name: str) -> Callable[[Fields], None]:
    """Return an edit that gives one of the stages' nodes another stage."""

    def change(fields: Fields) -> None:
        entry = fields["p"][stage]
        node = entry[0] or entry[1].partition(":")[2]
        entry[0], entry[1] = None if node == name.partition(":")[2] else node, name
        entry[4].clear()

    return change


def edges(*pairs: tuple[str, str]) -> Callable[[Fields], None]:
    """Return an edit that replaces the edges; ``node.port`` on both sides."""
    return lambda fields: fields.update(e=[[*src.split("."), *dst.split(".")] for src, dst in pairs])


CHAIN = ((".in", "linear-quantizer.in"), ("linear-quantizer.codes", "lorenzo-1d.in"), ("lorenzo-1d.out", "plain-rate.in"))

IMPOSSIBLE: dict[str, tuple[Callable[[Fields], None], str]] = {
    # the run state
    "step missing": (state(quant_step=None), "'quant_step' is None"),
    "state missing": (lambda f: f.update(t={}), "'eb' is None"),
    "step NaN": (state(quant_step=math.nan), "'quant_step' is nan"),
    "step infinite": (state(quant_step=math.inf), "'quant_step' is inf"),
    "step negative": (state(quant_step=-0.5), "'quant_step' is -0.5"),
    "step an integer": (state(quant_step=1), "'quant_step' is 1"),
    "step text": (state(quant_step="0.5"), "'quant_step' is '0.5'"),
    "bound NaN": (state(eb=math.nan), "'eb' is nan"),
    "inverse bytes": (state(inverse_step=b"\0" * 8), "'inverse_step' is b"),
    "fill code huge": (state(fill_code=2**64 - 1), "'fill_code' is 18446744073709551615"),
    "fill code below": (state(fill_code=-(2**31) - 1), "'fill_code' is -2147483649"),
    "fill code true": (state(fill_code=True), "'fill_code' is True"),
    "state of another node": (lambda f: f["t"].update({"nobody": {"x": 1}}), "nobody"),
    # the parameters
    "segment huge": (parameter(CODER, segment=2**40), "segment = 1099511627776"),
    "segment not a multiple": (parameter(CODER, segment=33), "segment = 33"),
    "segment zero": (parameter(CODER, segment=0), "segment = 0"),
    "segment negative": (parameter(CODER, segment=-32), "segment = -32"),
    "segment a float": (parameter(CODER, segment=32.0), r"segment = 32\.0"),
    "segment null": (parameter(CODER, segment=None), "segment = None"),
    "segment other": (parameter(CODER, segment=64), "is damaged|not zero|more than|chunk 0 need"),
    "region zero": (parameter(PREDICTOR, region=0), "region = 0"),
    "region huge": (parameter(PREDICTOR, region=2**63), "region = 9223372036854775808"),
    "region beside the chunk": (parameter(PREDICTOR, region=1000), "a chunk of 8192 elements does not fit"),
    "parameter unknown": (parameter(PREDICTOR, order=2), "no parameter 'order'"),
    "code type unknown": (parameter(QUANTIZER, code_type="float32"), "code_type = 'float32'"),
    "code type a number": (parameter(QUANTIZER, code_type=32), "code_type = 32"),
    # the stages
    "stage twice": (lambda f: f["p"].append(f["p"][CODER]), "not unique"),
    "no coder": (lambda f: f["p"].pop(), "the pipeline needs a stream one|makes"),
    "no quantizer": (lambda f: (f["p"].pop(0), f.update(t={})), "takes 16-, 32- or 64-bit integer codes"),
    "coder first": (lambda f: f["p"].reverse(), "codes 16-, 32- or 64-bit integers, not float32"),
    "coder for predictor": (renamed(PREDICTOR, "briquette-bitpack:plain-rate"), "cannot decode float32"),
    "predictor for coder": (renamed(CODER, "briquette-lorenzo:lorenzo-1d"), "the pipeline needs a stream one"),
    "other coder": (renamed(CODER, "briquette-bitpack:adaptive-bitplane"), "cannot|damaged|need"),
    "zigzag for quantizer": (renamed(QUANTIZER, "briquette-transforms:zigzag"), "cannot decode|unknown nodes"),
    "data of another type": (lambda f: f.update(d="int32"), "takes float16, bfloat16, float32 or float64 values, not int32"),
    "data of wider values": (lambda f: f.update(d="float64"), "cannot|damaged|need"),
    # the edges
    "a cycle": (
        edges(CHAIN[0], ("lorenzo-1d.out", "lorenzo-1d.in"), ("linear-quantizer.codes", "plain-rate.in")),
        "a cycle: lorenzo-1d -> lorenzo-1d",
    ),
    "fed twice": (edges(*CHAIN, ("linear-quantizer.codes", "plain-rate.in")), "plain-rate.in is fed twice"),
    "no such port": (edges(*CHAIN[:2], ("lorenzo-1d.codes", "plain-rate.in")), "no output 'codes'"),
    "not connected": (edges(*CHAIN[:2]), "without a source"),
    "side port to coder": (edges(*CHAIN[:2], ("linear-quantizer.outliers", "plain-rate.in")), "makes|not chunked"),
    "no edges": (lambda f: f.update(e=[]), "lists no edges"),
    # shape and chunk
    "shape doubled": (lambda f: f.update(s=[2, COUNT]), "the header claims 16458 elements"),
    "shape longer": (lambda f: f.update(s=[COUNT + 1]), "the header claims 8230 elements"),
    "shape shorter": (lambda f: f.update(s=[COUNT - 1]), "segment 0 codes 8229 elements, the array has 8228"),
    "shape empty": (lambda f: f.update(s=[0, COUNT]), "segment 0 codes 8229 elements, the array has 0"),
    "shape of a scalar": (lambda f: f.update(s=[]), "segment 0 codes 8229 elements, the array has 1"),
    "chunk halved": (lambda f: f.update(c=4096), "cannot hold"),
    "chunk doubled": (lambda f: f.update(c=16384), "cannot hold"),
    "chunk of another length": (lambda f: f.update(c=8160), "a chunk of 8160 elements does not fit"),
}


@pytest.fixture(scope="module")
def whole() -> bytes:
    """The archive whose header is edited: values kept aside in a block, float32."""
    return next(made.data for made in sound("fast") if made.name == "fast-float32-block")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_headers_are_refused(case: str, target: str, whole: bytes) -> None:
    change, words = IMPOSSIBLE[case]
    with pytest.raises(ArchiveError, match=words):
        briquette.decompress(edit_header(whole, lambda fields: change(fields) and None), target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_other_versions_and_packs_are_told_apart_from_damage(target: str, whole: bytes) -> None:
    def version(fields: Fields) -> None:
        fields["p"][CODER][2] = 2

    with pytest.raises(ArchiveVersionError, match="format version 2"):
        briquette.decompress(edit_header(whole, version), target=target)
    with pytest.raises(MissingPack, match="pip install elsewhere"):
        briquette.decompress(edit_header(whole, renamed(CODER, "elsewhere:plain-rate")), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "change",
    [
        lambda f: f.update(s=[3, 13, 211]),
        lambda f: f.update(o=">"),
        lambda f: f.update(b=None),
        lambda f: f["p"][PREDICTOR].__setitem__(3, "9.9"),
        lambda f: f["p"][CODER].__setitem__(0, 'quotes " and \\'),
        state(note="more than is read"),
        edges(*CHAIN),
    ],
)
def test_headers_that_say_the_same_data_otherwise(change: Callable[[Fields], None], target: str, whole: bytes) -> None:
    array = briquette.decompress(edit_header(whole, change), target=target)
    expected = briquette.decompress(whole, target="numpy")
    assert array.size == COUNT == math.prod(array.shape)
    np.testing.assert_array_equal(array.reshape(-1).astype(np.float32), expected)

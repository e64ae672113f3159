"""Every policy gives the same codes, metadata and words however a span is spread over lanes.

The device form (lane groups and all) is compiled by the host compiler over `emulated_lanes.h`, in which a lane is a fiber
and a collective that some lane of its mask does not reach is an error. The reference is the host form with one lane a span.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from briquette import discovery, sources
from briquette.ports import INTEGER_DTYPES, numpy_dtype
from briquette.record import Bound
from briquette.stage import PrimeContext
from briquette.target import KernelSource
from briquette_warp import chain
from briquette_warp.chain import is_coder, is_head, is_selector
from briquette_warp.probe import LaneGeometry, Probe, geometries, probe_source
from briquette_warp.survey import Policy, survey

#: beyond the defaults and what the presets use: slices of a lane's array, segments of several rows, every code type
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "linear-quantizer": [{"code_type": "int16"}, {"code_type": "int32"}, {"code_type": "int64"}],
    "adaptive-lorenzo": [{"tile": 32}, {"tile": 64}, {"tile": 256}],
    "lorenzo-1d": [{"region": 8}, {"region": 32}, {"region": 256}],
    "plain-rate": [{"segment": 64}, {"segment": 256}],
    "adaptive-bitplane": [{"segment": 64}, {"segment": 256}],
    "outlier": [{"segment": 64}, {"segment": 256}],
    "tiled-lorenzo": [{"axes": 1}, {"axes": 2}, {"axes": 3}],
    "forward-fill": [{"region": 8}, {"region": 32}],
    "masked-quantizer": [{"fill_values": "131.072 0"}],
    "masked-log-quantizer": [{"fill_values": "131.072 -0.0"}],
}
STAGES = (
    "adaptive-bitplane",
    "adaptive-lorenzo",
    "integer-quantizer",
    "linear-quantizer",
    "lorenzo-1d",
    "plain-rate",
    "outlier",
    "tiled-lorenzo",
    "zigzag",
    "log-quantizer",
    "masked-quantizer",
    "masked-log-quantizer",
    "forward-fill",
)
#: whose inverse does not give the codes back: what it changed comes back otherwise
ONE_WAY = ("forward-fill",)
CODES = {"int16", "uint16", "int32", "uint32", "int64", "uint64"}
SEED = 20261
HEADERS = Path(chain.__file__).parents[1]

Bytes = NDArray[np.uint8]


@cache
def policies() -> tuple[Policy, ...]:
    return survey(discovery.registry(), VARIANTS).policies


@cache
def compiler() -> list[str]:
    named = os.environ.get("CXX", "").split()
    found = named or [path for path in map(shutil.which, ("c++", "g++", "clang++")) if path][:1]
    if not found:
        pytest.skip("no C++ compiler: set CXX, or install c++, g++ or clang++")
    return found


@dataclass(frozen=True)
class Form:
    """Probes compiled into one library."""

    library: ctypes.CDLL
    probes: tuple[Probe, ...]

    def run(self, number: int, direction: str, read: NDArray[Any], made: Bytes, words: NDArray[np.uint32], params: bytes) -> None:
        probe, message = self.probes[number], ctypes.create_string_buffer(512)
        count = elements(probe.forward)
        threads = count // probe.geometry.elements
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (read, made, words)]
        kernel = ctypes.cast(getattr(self.library, f"p{number}_{direction}"), ctypes.c_void_p)
        status = self.library.emulate(kernel, ctypes.c_uint32(threads), *pointers, params + bytes(16), message)
        assert status == 0, f"{probe.forward.op.op_name} at {probe.geometry}, {direction}: {message.value.decode()}"


def compiled(folder: Path, name: str, probes: Sequence[Probe], *options: str) -> Form:
    return Form(built(folder, name, probe_source(name, probes), *options), tuple(probes))


def built(folder: Path, name: str, source: KernelSource, *options: str) -> ctypes.CDLL:
    for header, text in sources.resolve_headers(source).texts.items():
        path = folder / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / f"{name}.cpp").write_text(source.text, encoding="utf-8")
    emulator = Path(__file__).with_name("emulated_lanes.h")
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{folder}"]
    command = [*compiler(), *flags, f"-I{HEADERS}", *options, "-include", str(emulator), f"{name}.cpp", "-o", f"{name}.so"]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / f"{name}.so"))


def elements(member: Any) -> int:
    """Elements of a test's stream: whole warps at every geometry, and for coders a segment of every width."""
    longest = max(32, member.spec.span)
    warps = member.main_in.numpy.itemsize // 4 + 1 if is_coder(member) else 8 if is_head(member) else 1
    return 32 * longest * warps


def codes(dtype: str, member: Any) -> NDArray[Any]:
    """Codes of every width, a width a segment, either folded or as magnitudes, with the extremes in the last segments."""
    rng = np.random.default_rng(SEED)
    kind, bits = np.dtype(dtype), 8 * np.dtype(dtype).itemsize
    count, span = elements(member), max(32, member.spec.span)
    raw = rng.integers(0, (1 << bits) - 1, count, dtype=np.uint64, endpoint=True)
    width = np.repeat(np.arange(count // span) % (bits + 1), span).astype(np.uint64)
    raw = np.where(width == 0, np.uint64(0), raw >> (np.uint64(bits) - np.maximum(width, 1)))
    values = raw.astype(f"u{kind.itemsize}")
    if kind.kind == "i":
        negative = rng.random(count) < 0.5
        signed = values.view(kind)
        folded = (values >> 1).view(kind) ^ -(values & 1).view(kind)
        values = np.where(np.repeat(rng.random(count // span) < 0.5, span), folded, np.where(negative, -signed, signed))
    if is_selector(member):  # half of the tiles smooth, of either order, near zero and far from it
        tiles = values.view(f"u{kind.itemsize}").reshape(-1, span)
        slow = np.cumsum(rng.integers(0, 4, tiles.shape), axis=1).astype(tiles.dtype)
        tiles[0::4], tiles[1::4] = slow[0::4], np.cumsum(slow[1::4], axis=1, dtype=tiles.dtype)
        tiles[2::8] += tiles.dtype.type(5000)
        tiles[0::8] += tiles.dtype.type(5000)
        tiles[1::8] -= tiles.dtype.type(9000)
    info = np.iinfo(kind)
    extremes = np.array([info.min, info.max, info.max - 1, 0, 1, info.min + 1], kind)
    if kind.kind == "i":
        values[span : 2 * span] = info.min  # a span of nothing but the lowest code, and others that begin or end with it
        values[2 * span : 2 * span + span // 2] = values[4 * span - span // 2 : 4 * span] = info.min
    values[-4 * span :: 7] = extremes[np.arange(values[-4 * span :: 7].size) % extremes.size]
    return np.ascontiguousarray(values, kind)


def reals(dtype: str, count: int) -> NDArray[Any]:
    """Values near codes of every magnitude, and those that are kept aside."""
    rng = np.random.default_rng(SEED)
    if np.dtype(numpy_dtype(dtype)).itemsize == 2:
        with np.errstate(over="ignore"):
            found: NDArray[Any] = reals("float32", count).astype(numpy_dtype(dtype))
        return found
    x = (rng.standard_normal(count) * np.exp2(rng.integers(-20, 70, count))).astype(dtype)
    x[: count // 4] = (rng.integers(-70000, 70000, count // 4) * 2e-3 + rng.choice([0.0, 1e-3, -1e-3], count // 4)).astype(dtype)
    info = np.finfo(dtype)
    special = [np.nan, np.inf, -np.inf, -0.0, info.max, info.min, info.tiny, info.smallest_subnormal, 65.536 * 2, 131.072]
    x[3::41] = np.resize(np.array(special, dtype), x[3::41].size)
    return x


@pytest.fixture(params=STAGES)
def forms(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[Policy], Form, Form]:
    """The policies of a stage in the reference form (one probe each) and in the device form (one for each geometry)."""
    # the reference is a lane alone, which long spans have no geometry for
    mine = [p for p in policies() if p.name == request.param and geometries(p.forward)[0].lanes == 1]
    reference = [Probe(p.forward, p.inverse, geometries(p.forward)[0]) for p in mine]
    spread = [Probe(p.forward, p.inverse, geometry) for p in mine for geometry in geometries(p.forward)]
    host = compiled(tmp_path, f"{request.param}-host", reference)
    return mine, host, compiled(tmp_path, f"{request.param}-lanes", spread, "-DBRIQUETTE_EMULATE=1")


@dataclass(frozen=True)
class Outcome:
    """What both directions made, as bytes."""

    forward: bytes
    words: bytes
    back: bytes


def outcome(form: Form, number: int, source: NDArray[Any], params: bytes) -> Outcome:
    probe, member = form.probes[number], form.probes[number].forward
    segments = source.size // member.spec.span
    made = np.full(8 * segments if is_coder(member) else 8 * source.size, 0xA5, np.uint8)
    words = np.full(segments * probe.room + 2 if is_coder(member) else source.size, 0xA5A5A5A5, np.uint32)
    form.run(number, "forward", source, made, words, params)
    back = np.full(source.nbytes, 0x5A, np.uint8)
    form.run(number, "inverse", made, back, words, params)
    return Outcome(made.tobytes(), words.tobytes(), back.tobytes())


def test_every_stage_and_code_type_is_covered() -> None:
    assert {policy.name for policy in policies()} >= set(STAGES)
    for name in ("lorenzo-1d", "plain-rate", "zigzag", "adaptive-bitplane", "adaptive-lorenzo", "forward-fill"):
        wanted = {dtype for dtype in CODES if name not in ("zigzag", "forward-fill") or not dtype.startswith("u")}
        assert {policy.dtype for policy in policies() if policy.name == name} == wanted
    for name, span, expected in (
        ("lorenzo-1d", 256, ["1x256", "2x128", "4x64", "8x32", "16x16", "32x8"]),
        ("lorenzo-1d", 8, ["1x32", "2x4", "4x2", "8x1"]),
        ("plain-rate", 32, ["1x32", "2x16", "4x8", "8x4", "16x2", "32x1"]),
        ("adaptive-lorenzo", 256, ["1x256", "2x128", "4x64", "8x32", "16x16", "32x8"]),
        ("adaptive-lorenzo", 32, ["1x32", "2x16", "4x8", "8x4", "16x2", "32x1"]),
        ("adaptive-bitplane", 256, ["1x256", "2x128", "4x64", "8x32", "16x16", "32x8"]),
    ):
        found = next(p.forward for p in policies() if p.name == name and p.forward.spec.span == span)
        assert [str(geometry) for geometry in geometries(found)] == expected


def test_results_do_not_depend_on_the_geometry(forms: tuple[list[Policy], Form, Form]) -> None:
    mine, host, spread = forms
    for number, policy in enumerate(mine):
        member = policy.forward
        if is_head(member):
            source, params = values(policy), head_params(policy)
        else:
            source, params = codes(policy.dtype, member), settled_params(policy)
        expected = outcome(host, number, source, params)
        if not is_head(member) and policy.name not in ONE_WAY:
            assert expected.back == source.tobytes(), f"{policy.title} of {policy.dtype}: the inverse of the host form"
        for index, geometry in of_policy(spread, policy):
            assert outcome(spread, index, source, params) == expected, f"{policy.title} of {policy.dtype} at {geometry}"


def values(policy: Policy) -> NDArray[Any]:
    member = policy.forward
    return codes(policy.dtype, member) if policy.dtype in INTEGER_DTYPES else reals(policy.dtype, elements(member))


def of_policy(form: Form, policy: Policy) -> Iterator[tuple[int, LaneGeometry]]:
    for index, probe in enumerate(form.probes):
        if probe.forward is policy.forward:
            yield index, probe.geometry


def settled_params(policy: Policy, shape: tuple[int, ...] = (9, 9, 9)) -> bytes:
    """Return the parameters of what does not look at the data, as they are for an array of `shape`."""
    member = policy.forward
    if member.op.params is None:
        return b""
    state = member.stage.prime_fused_forward_state(PrimeContext(None, member.types, None, 1, shape=shape))
    return member.op.params.pack(member.stage.fused_params(state, member.types))


def head_params(policy: Policy) -> bytes:
    member = policy.forward
    source = values(policy)
    bound = Bound(3.0 if policy.dtype in INTEGER_DTYPES else 1e-3, member.stage.bound_modes[0])
    context = PrimeContext(source, member.types, bound, source.size, missing=member.stage.missing_values())
    state = member.stage.prime_fused_forward_state(context)
    assert member.op.params is not None
    return member.op.params.pack(member.stage.fused_params(state, member.types))


SKIPS_ONE = """
#include <briquette_warp/cuda/group.cuh>
extern "C" __global__ void p0_forward(const uint8_t *, uint8_t *, uint32_t *words, const uint8_t *) {
  briquette::WarpLanes<8> group;
  if (threadIdx.x % 8 != 5 || threadIdx.x / 8 != 2) words[threadIdx.x] = group.bit_or(1u << group.rank());
}
"""


def test_a_collective_that_a_lane_skips_is_an_error(tmp_path: Path) -> None:
    form = built(tmp_path, "skips", KernelSource("skips", SKIPS_ONE, ("p0_forward",)), "-DBRIQUETTE_EMULATE=1")
    words, message = np.zeros(32, np.uint32), ctypes.create_string_buffer(512)
    kernel = ctypes.cast(form.p0_forward, ctypes.c_void_p)
    nothing = ctypes.c_void_p(0)
    status = form.emulate(kernel, ctypes.c_uint32(32), nothing, nothing, ctypes.c_void_p(words.ctypes.data), nothing, message)
    assert status == 1
    assert message.value.decode() == "block 0: thread 17 reads lane 21 in __shfl_xor_sync of mask 00ff0000, which has returned"

"""Compiles policies of this pack with the driver of the tests, and calls them."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from briquette import sources
from briquette.target import KernelSource

Bytes = NDArray[np.uint8]
GUARD = 64


def compiler() -> list[str]:
    named = os.environ.get("CXX", "").split()
    found = named or [path for path in map(shutil.which, ("c++", "g++", "clang++")) if path][:1]
    if not found:
        pytest.skip("no C++ compiler: set CXX, or install c++, g++ or clang++")
    return found


@dataclass(frozen=True)
class Policies:
    """A library of policies, each stage's with its chunk size, run by `lanes` lanes."""

    library: ctypes.CDLL
    stages: tuple[Any, ...]

    def encode(self, number: int, data: Bytes, descending: bool = False) -> Bytes | None:
        """Return the coded form of a chunk's bytes, None where the policy says that it does not shrink."""
        size = self.stages[number].chunk_bytes
        plain, out = np.zeros(size + 16, np.uint8), np.full(size + GUARD, 0x5A, np.uint8)
        begin = -plain.ctypes.data % 16  # chunks lie at multiples of 16
        plain[begin : begin + data.size] = data
        got = self.library.lc_encode(number, *_pointers(plain[begin:], out), data.size, descending)
        assert got <= max(size, data.size), f"{self.stages[number]} returns {got:#x}"
        assert (out[size:] == 0x5A).all(), "written beyond the chunk"
        return out[:got].copy() if got < data.size else None

    def decode(self, number: int, coded: Bytes, size: int, descending: bool = False) -> Bytes | None:
        """Return the bytes of a chunk, None where the policy refuses `coded`, which is padded to whole words."""
        room = self.stages[number].chunk_bytes
        out = np.full(room + GUARD, 0x5A, np.uint8)
        got = self.library.lc_decode(number, ctypes.c_void_p(coded.ctypes.data), coded.size, _pointers(out)[0], size, descending)
        assert got in (0, 1), f"{self.stages[number]} returns {got:#x}"
        assert (out[room:] == 0x5A).all(), "written beyond the chunk"
        return out[:size].copy() if got else None

    def turn(self, number: int, data: Bytes, back: bool = False) -> Bytes:
        """Return a chunk's bytes as the transform leaves them."""
        room = self.stages[number].chunk_bytes
        plain, out = np.zeros(room, np.uint8), np.full(room + GUARD, 0x5A, np.uint8)
        plain[: data.size] = data
        self.library.lc_turn(number, *_pointers(plain, out), data.size, back)
        assert (out[data.size :] == 0x5A).all(), "written behind the data"
        return out[: data.size].copy()


def _pointers(*arrays: Bytes) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def build(folder: Path, stages: Sequence[Any], lanes: int = 1, coders: bool = True, options: Sequence[str] = ()) -> Policies:
    """Compile the policies of `stages` for `lanes` lanes, in a folder of their own."""
    calls = ("encode", "decode") if coders else ("turn",)
    names = [f"{stage.fused_op().qualified}, {stage.chunk_bytes}, {lanes}" for stage in stages]
    lines = ['#include "lc_driver.h"', *sorted({f"#include <{stage.fused_op().include_header}>" for stage in stages})]
    kinds = {
        "encode": ("uint32_t", "const uint8_t *in, uint8_t *out, uint32_t bytes, bool descending", "in, out, bytes, descending"),
        "decode": ("uint32_t", "const uint8_t *in, uint32_t coded, uint8_t *out, uint32_t bytes, bool descending",
                   "in, coded, out, bytes, descending"),
        "turn": ("void", "const uint8_t *in, uint8_t *out, uint32_t bytes, bool back", "in, out, bytes, back"),
    }  # fmt: skip
    for call in calls:
        result, parameters, arguments = kinds[call]
        lines.append(f"typedef {result} (*{call.title()})({parameters});")
        table = ", ".join(f"driver::{call}<{name}>" for name in names)
        lines.append(f"static const {call.title()} {call}s[] = {{{table}}};")
        lines.append(f'extern "C" {result} lc_{call}(uint32_t which, {parameters}) {{ return {call}s[which]({arguments}); }}')
    source = KernelSource(f"lc-{lanes}", "\n".join(lines).replace('#include "lc_driver.h"', _driver_includes()), ())
    folder.mkdir(parents=True, exist_ok=True)
    for header, text in sources.resolve_headers(source).texts.items():
        path = folder / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / f"lc{lanes}.cpp").write_text("\n".join(lines), encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-fno-strict-aliasing", "-w", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", *options]
    command = [*compiler(), *flags, f"-I{folder}", f"-I{Path(__file__).parent}", f"lc{lanes}.cpp", "-o", f"lc{lanes}.so"]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[:4000]
    library = ctypes.CDLL(str(folder / f"lc{lanes}.so"))
    for call in calls:
        getattr(library, f"lc_{call}").restype = ctypes.c_uint32 if call != "turn" else None
    return Policies(library, tuple(stages))


def _driver_includes() -> str:
    return "#include <briquette_chunk/cuda/coop.cuh>"

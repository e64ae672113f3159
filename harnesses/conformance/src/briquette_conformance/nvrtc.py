"""NVRTC from the wheel `nvidia-cuda-nvrtc`, called through ctypes: source to cubin, without a GPU, driver or toolkit."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

#: the wheel that holds the library
WHEEL: Final = "nvidia-cuda-nvrtc"
#: IEEE arithmetic, as every target has it: no contraction, no flush to zero, exact division and square root
FLAGS: Final = ("--std=c++17", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true")
_VERBOSE: Final = "--ptxas-options=-v"
_ENTRY: Final = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
_STACK: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS: Final = re.compile(r"Used (\d+) registers")
_SHARED: Final = re.compile(r"(\d+) bytes smem")


class NvrtcMissing(Exception):
    """No NVRTC is installed in this environment."""


class CompileFailed(Exception):
    """NVRTC refused the source; the text is its log."""


@dataclass(frozen=True)
class Usage:
    """What one kernel takes on one architecture: registers a thread, the rest in bytes (spills and stack a thread)."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    @property
    def spills(self) -> bool:
        return bool(self.spill_stores or self.spill_loads)


class Nvrtc:
    """The library; calls may come from several threads.

    Raises
    ------
    NvrtcMissing
        The wheel is not installed here.
    """

    def __init__(self) -> None:
        self._call = ctypes.CDLL(_library())
        self._call.nvrtcGetErrorString.restype = ctypes.c_char_p

    @cached_property
    def version(self) -> str:
        return f"{WHEEL} {importlib.metadata.version(WHEEL)}"

    def compile(self, name: str, text: str, headers: Mapping[str, str], arch: str) -> tuple[bytes, dict[str, Usage]]:
        """Return the cubin for `arch`, such as ``"sm_90"``, and what each of its kernels takes.

        Parameters
        ----------
        name : str
            For messages.
        text : str
        headers : mapping of str to str
            Every header by the name it is included as, handed over in memory.
        arch : str

        Raises
        ------
        CompileFailed
            The source, or a header, has errors.
        """
        program = ctypes.c_void_p()
        names = [key.encode() for key in headers]
        texts = [value.encode() for value in headers.values()]
        count = len(names)
        self._check(
            self._call.nvrtcCreateProgram(
                ctypes.byref(program), text.encode(), f"{name}.cu".encode(), count, _strings(texts), _strings(names)
            )
        )
        try:
            options = [f"-arch={arch}".encode(), *(flag.encode() for flag in FLAGS), _VERBOSE.encode()]
            status = self._call.nvrtcCompileProgram(program, len(options), _strings(options))
            log = self._text(program, "ProgramLog")
            if status:
                raise CompileFailed(log.decode("utf-8", "replace").strip("\0\n") or self._message(status))
            return self._text(program, "CUBIN"), usages(log.decode("utf-8", "replace"))
        finally:
            self._call.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._call, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._call, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"NVRTC failed: {self._message(status)}")

    def _message(self, status: int) -> str:
        text: bytes = self._call.nvrtcGetErrorString(status)
        return text.decode()


def usages(log: str) -> dict[str, Usage]:
    """Read what ``ptxas -v`` prints; kernels by name."""
    found: dict[str, Usage] = {}
    for name, part in _entries(log):
        stack, registers, shared = _STACK.search(part), _REGISTERS.search(part), _SHARED.search(part)
        if stack and registers:
            frame, stores, loads = map(int, stack.groups())
            found[name] = Usage(int(registers[1]), frame, stores, loads, int(shared[1]) if shared else 0)
    return found


def _entries(log: str) -> list[tuple[str, str]]:
    """Cut the log where a kernel begins."""
    starts = list(_ENTRY.finditer(log))
    ends = [*(match.start() for match in starts[1:]), len(log)]
    return [(match[1], log[match.end() : end]) for match, end in zip(starts, ends, strict=True)]


def _library() -> str:
    try:
        files = importlib.metadata.files(WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if re.fullmatch(r"libnvrtc\.so\.\d+", file.name):
            return str(file.locate())
    raise NvrtcMissing(f"no NVRTC for Linux in this environment; run: make test-nvrtc, or: pip install {WHEEL}")


def _strings(values: Sequence[bytes]) -> Any:
    return (ctypes.c_char_p * len(values))(*values)

"""Runs one policy alone at every geometry, each lane a fiber of the emulator: results must not depend on the geometry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from briquette.errors import PipelineError
from briquette.target import KernelSource, Module, Target

from .chain import is_coder
from .probe import Probe, probe_source

_MESSAGE: Final = 512
#: what memory holds that a policy has no business to write
GUARD: Final = 0xA5


@dataclass(frozen=True)
class Outcome:
    """What both directions of a policy made of a stream.

    Attributes
    ----------
    made : bytes
        Codes; for a coder metadata and size of each segment, two words each.
    words : uint32 array
        Of a coder `Probe.room` words a segment, of a head a mark for each value; bytes of `GUARD` where nothing was written.
    back : bytes
    """

    made: bytes
    words: NDArray[np.uint32]
    back: bytes

    def same(self, other: Outcome) -> bool:
        return (self.made, self.back) == (other.made, other.back) and np.array_equal(self.words, other.words)


class ProbedPolicies:
    """Probes compiled into one module for a host target.

    Parameters
    ----------
    name : str
        For messages.
    probes : sequence of Probe
    host : Target
        Compiles C++.
    """

    def __init__(self, name: str, probes: Sequence[Probe], host: Target) -> None:
        self.probes = tuple(probes)
        self._module: Module = host.compile(_emulated(probe_source(name, probes)))

    def count(self, number: int, warps: int = 2) -> int:
        """Return elements of a stream that fills whole warps at every geometry."""
        member = self.probes[number].forward
        return 32 * max(32, member.spec.span) * warps

    def run(self, number: int, source: NDArray[Any], params: bytes) -> Outcome:
        """Run both directions of a probe.

        Raises
        ------
        PipelineError
            Lanes part at a collective; the message names the operation and the lanes.
        """
        probe, member = self.probes[number], self.probes[number].forward
        segments = source.size // member.spec.span
        coder = is_coder(member)
        made = np.full(8 * segments if coder else 8 * source.size, GUARD, np.uint8)
        words = np.full(segments * probe.room + 2 if coder else 2 * source.size, 0x01010101 * GUARD, np.uint32)
        self._call(number, "forward", source, made, words, params)
        back = np.full(source.nbytes, 0x5A, np.uint8)
        kept = words.copy()
        self._call(number, "inverse", made, back, words, params)
        if not np.array_equal(kept, words):
            raise PipelineError(f"{member.op.op_name} at {probe.geometry} writes to what its inverse is to read")
        return Outcome(made.tobytes(), words, back.tobytes())

    def _call(self, number: int, direction: str, *arrays: Any) -> None:
        probe = self.probes[number]
        read, made, words, params = arrays
        held = np.frombuffer(params + bytes(32), np.uint8).copy()
        message = np.zeros(_MESSAGE, np.uint8)
        longest = read if direction == "forward" else made
        threads = longest.size // probe.geometry.elements if direction == "forward" else self._threads(probe, made)
        slots = np.array([threads, *(a.ctypes.data for a in (read, made, words, held, message))], np.uint64)
        if self._module.call(f"emulate_p{number}_{direction}", slots):
            text = message.tobytes().split(b"\0")[0].decode(errors="replace")
            raise PipelineError(f"{probe.forward.op.op_name} at {probe.geometry}, {direction}: {text}")

    @staticmethod
    def _threads(probe: Probe, back: NDArray[np.uint8]) -> int:
        return int(back.size) // probe.forward.main_in.itemsize // probe.geometry.elements


def _emulated(source: KernelSource) -> KernelSource:
    lines = ["#include <briquette_warp/cuda/emulator.cuh>", source.text]
    for entry in source.entry_points:
        lines += [
            f'extern "C" __attribute__((visibility("default"))) int32_t emulate_{entry}(uint64_t *s) {{',
            "  const uint8_t *in = (const uint8_t *)s[1], *params = (const uint8_t *)s[4];",
            "  uint8_t *out = (uint8_t *)s[2]; uint32_t *words = (uint32_t *)s[3];",
            "  return briquette::emulator::launch(dim3(unsigned(s[0] / 32)), dim3(32), 0, (char *)s[5],",
            f"                                     [=] {{ {entry}(in, out, words, params); }});",
            "}",
        ]
    return KernelSource(f"lanes-{source.name}", "\n".join([*lines, ""]), tuple(f"emulate_{e}" for e in source.entry_points))

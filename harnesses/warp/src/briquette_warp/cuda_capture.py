"""A compression and its decompression as graphs: the same array memory, the same shape, replayed at launch cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from briquette.errors import PipelineError
from briquette.graph import NodePort
from briquette.harness import GroupRun
from briquette.record import RunRecord

from .cuda_program import CudaProgram
from .cuda_run import Placed


class CapturedGroup:
    """One fused group, both directions, captured for the memory of one source array.

    What a run resolves lies in a device block, so that a replay stays right when the data (and their range) change. The
    worst case of every buffer is allocated once; values are kept aside by a kernel that is always launched.
    """

    def __init__(self, forward: CudaProgram, inverse: CudaProgram, session: Any, source: Any, like: GroupRun) -> None:
        self._forward, self._session, self.source = forward, session, source
        run = replace(like, record=RunRecord())
        if not forward.captures:
            raise PipelineError(
                "parameters are not resolved on the device: the quantizer head does not do that (geometry resolves=1), or "
                "another stage of the group takes the head's step"
            )
        with session.current():
            self._work = forward.prepare(session, source, run)
            if forward.keeps_aside:
                self._work.side = forward.prepare_side(self._work, source.size)
            forward.start(self._work)  # compiles and loads what a capture must not
            session.finish()
            self.output = session.array(source.size, source.dtype.name)
            back = replace(like, record=RunRecord(), out=self.output)
            inverse.enqueue_inverse(session, self._whole(), back)
            session.finish()
            self._compress = session.capture(lambda: forward.start(self._work))
            self._decompress = session.capture(lambda: inverse.enqueue_inverse(session, self._whole(), back))

    def _whole(self) -> dict[NodePort, Placed]:
        """The values as the kernels see them: all the room there is, whatever a run uses of it."""
        return self._forward.capacity(self._work)

    def compress(self, stream: Any = None) -> None:
        """Replay the compression in `stream`; returns at once."""
        with self._session.current():
            self._session.replay(self._compress, stream)

    def decompress(self, stream: Any = None) -> Any:
        """Replay the decompression of what the last `compress` made; return the output, which is the same every time."""
        with self._session.current():
            self._session.replay(self._decompress, stream)
        return self.output

    def values(self) -> tuple[RunRecord, Mapping[NodePort, Any]]:
        """Wait, and return the record and the sinks' values of the last `compress`; the next one overwrites them."""
        with self._session.current():
            self._session.finish_all()
            self._work.run = replace(self._work.run, record=RunRecord())
            found = self._forward.collect(self._work)
        return self._work.run.record, found

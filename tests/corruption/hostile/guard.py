"""What guards a campaign's process: a record of the mutant at hand, a time limit for each, and a limit of memory."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from briquette import discovery

#: seconds that one mutant may take, a compiler run on a busy machine included
SECONDS: Final = 60.0
#: bytes a reader may take beside 4 times what the tables' entries can hold
SLACK: Final = 64 << 20

#: flags of the host target's code in a process that sanitizes
SANITIZE: Final = ("-O1", "-g1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all")


class Watch:
    """Guards the mutants of a campaign, one after another.

    Parameters
    ----------
    path : Path
        Where the mutant at hand is written, so that it is there when the process dies of it.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.slowest = 0.0
        faulthandler.enable()
        # says where the process is, then lets the signal end it, which works inside compiled code too
        faulthandler.register(signal.SIGALRM, chain=True)

    @contextmanager
    def over(self, mutant: bytes) -> Iterator[None]:
        """Guard what is done with `mutant`."""
        os.pwrite(self._file, mutant, 0)
        os.ftruncate(self._file, len(mutant))
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        begin = time.perf_counter()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.slowest = max(self.slowest, time.perf_counter() - begin)


def host_target() -> Any:
    """Return the host target that `briquette` itself uses."""
    return discovery.registry().target("host")


def sanitize() -> None:
    """Have this process's host code compiled with sanitizers; their run-time library must have been preloaded."""
    os.environ.pop("LD_PRELOAD", None)  # it is for this process, not for the compilers that it starts
    host_target().extra_flags = SANITIZE


def limit_memory(capacity: int) -> None:
    """Bound the address space by what is in use, `SLACK` and 4 times `capacity` bytes; compilers stay free of it."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    limit = used + SLACK + 4 * capacity
    target = host_target()

    def unlimited(source: Any) -> Any:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        try:
            return type(target).compile(target, source)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

    target.compile = unlimited
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))

"""``python -m briquette_conformance.sanitized JOBS``: CUDA kernels in the lane emulator, compiled with a sanitizer, or on a GPU.

Runs in a process with the sanitizer's library preloaded (see `run_jobs`). Each lane is a fiber of which the sanitizer knows;
only the barriers and fences that CUDA has order memory, so a missing one is a data race in the report, with the policy's line.
`run_on_gpu` has NVIDIA's compute-sanitizer watch the same jobs on the target ``cuda``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import briquette as bq
from briquette import discovery
from briquette.errors import ArchiveError
from briquette.executor import Executable
from briquette.ports import Chunked
from briquette.record import Bound
from briquette.target import Target
from briquette_warp.emulation import EmulatedHarness, EmulatedTarget

from .data import Array, first_difference, ragged, same, smooth, special
from .report import NotHere
from .ways import Place, Run, forward, inverse

FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "thread": ("-O1", "-g", "-fsanitize=thread"),
    "address": ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize=alignment", "-fno-sanitize-recover=undefined"),
}
_LIBRARIES: Final = {"thread": "libtsan.so", "address": "libasan.so"}
_OPTIONS: Final = {
    "TSAN_OPTIONS": "halt_on_error=1 exitcode=66 history_size=4",
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "halt_on_error=1 print_stacktrace=1",
}
_SECONDS: Final = 600
#: damaged values that a job decodes
_MUTATIONS: Final = 24
#: elements of a short stream, and how many damaged values of it the host's kernels decode
_FEW: Final = 70
_OF_FEW: Final = 3000
_SUMMARY: Final = re.compile(r"(?:WARNING: ThreadSanitizer: |ERROR: AddressSanitizer: |runtime error: )(.*)")
_PLACE: Final = re.compile(r"(?:\binclude/)?([A-Za-z_]\w*/(?:[\w.-]+/)*[\w.-]+\.cuh):(\d+)")


@dataclass(frozen=True)
class Job:
    """A chain to run: its TOML, the type it is fed with, the bound, sizes of streams, and a geometry of the harness's."""

    title: str
    toml: str
    dtype: str
    eb: float | None
    mode: str
    sizes: tuple[int, ...]
    geometry: int | None = None

    @property
    def bound(self) -> Bound | None:
        return None if self.eb is None else Bound(self.eb, self.mode)


def run_jobs(sanitizer: str, jobs: Sequence[Job], headers: Mapping[str, str] | None = None) -> Iterator[tuple[Job, str]]:
    """Run jobs in a process of their own; yield each with what the sanitizer, or the comparison, has to say: nothing if clean.

    Parameters
    ----------
    sanitizer : {"thread", "address"}
    headers : mapping of str to str, optional
        Header name to text, used in place of what is installed.

    Raises
    ------
    NotHere
        No host compiler, or it brings no such sanitizer, or that does not run on this kernel.
    """
    library = _library(sanitizer)
    waiting = list(jobs)
    while waiting:
        with tempfile.TemporaryDirectory(prefix="briquette-") as folder:
            variables = {**_OPTIONS, "LD_PRELOAD": library, "TMPDIR": folder}
            done = _run(folder, {"sanitizer": sanitizer, "headers": dict(headers or {})}, waiting, variables)
        if "unexpected memory mapping" in done.stderr or "failed to intercept" in done.stderr:
            raise NotHere(f"the {sanitizer} sanitizer does not run on this kernel's address layout")
        finished = _answers(done.stdout)
        yield from zip(waiting, finished, strict=False)
        waiting = waiting[len(finished) :]
        if done.returncode == 0 and not waiting:
            return
        if waiting:
            yield waiting[0], _summary(done.stdout + done.stderr, done.returncode)
            waiting = waiting[1:]


def run_on_gpu(tool: str, jobs: Sequence[Job]) -> str:
    """Run jobs on the target ``cuda`` under a tool of compute-sanitizer; return what that, or the comparison, has to say.

    Parameters
    ----------
    tool : {"memcheck", "racecheck", "synccheck", "initcheck"}

    Raises
    ------
    NotHere
        compute-sanitizer is not found, or does not run on this machine.
    """
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        raise NotHere("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    with tempfile.TemporaryDirectory(prefix="briquette-") as folder:
        done = _run(folder, {"sanitizer": "", "headers": {}}, jobs, {}, program, "--tool", tool, "--error-exitcode", "86")
    finished = _answers(done.stdout)
    told = [line.lstrip("= ") for line in done.stdout.splitlines() if line.startswith("=========")]
    if not finished and any("not supported" in line.lower() or "unable to" in line.lower() for line in told):
        raise NotHere(f"compute-sanitizer does not run here: {told[-1]}")
    if any(finished):
        return next(filter(None, finished))
    if done.returncode == 0 and len(finished) == len(jobs):
        return ""
    # what it says of an error is one line, then where: as many as it takes to name the kernel
    errors = [i for i, line in enumerate(told) if line and not line.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY"))]
    said = "; ".join(told[errors[0] : errors[0] + 3]) if errors else (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return f"{tool}: {said}"


def _run(
    folder: str, asked: Mapping[str, Any], jobs: Sequence[Job], variables: Mapping[str, str], *under: str
) -> subprocess.CompletedProcess[str]:
    """Run jobs in a process of their own, `under` a command where one is given."""
    path = Path(folder, "jobs.json")
    path.write_text(json.dumps({**asked, "jobs": [asdict(job) for job in jobs]}), encoding="utf-8")
    return subprocess.run(
        [*under, sys.executable, "-m", __name__, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), **variables},
        text=True,
        errors="replace",
        capture_output=True,
        check=False,
        timeout=_SECONDS,
    )


def _answers(text: str) -> list[str]:
    """Return what `main` has printed of each job: nothing where it is clean."""
    lines = [line for line in text.splitlines() if line.startswith(("clean ", "differs "))]
    return [line.removeprefix("clean ").removeprefix("differs ") for line in lines]


def _library(sanitizer: str) -> str:
    host = _compiling()
    command = shlex.split(host.describe().get("command", "")) or ["c++"]
    name = _LIBRARIES[sanitizer]
    found = subprocess.run([*command, f"-print-file-name={name}"], text=True, capture_output=True, check=False).stdout.strip()
    if not os.path.isabs(found):
        raise NotHere(f"{name} is not there for {shlex.join(command)}")
    return found


def _compiling() -> Target:
    """Return the target that compiles C++."""
    for target in discovery.registry().targets():
        if target.dialect == "c++":
            why = target.unavailable()
            if why:
                raise NotHere(f"target {target.name}: {why}")
            return target
    raise NotHere("no target that compiles C++ is installed; install briquette-target-host")


def _summary(text: str, status: int) -> str:
    """Return what a report says and where, the lines of policies and harnesses first to last."""
    match = _SUMMARY.search(text)
    begin = text.rfind("\n", 0, match.start()) + 1 if match else 0  # UBSan names the place before it says what happened
    places = [f"<{p[0]}>, line {p[1]}" for p in _PLACE.findall(text[begin:])]
    where = "; ".join([p for p in dict.fromkeys(places) if "emulat" not in p][:6])
    kind = match[1].split(" on address")[0].split(" (pid")[0] if match else ""
    if not kind:
        lines = [line for line in text.strip().splitlines() if line.strip()]
        return f"the process ended with status {status}: {lines[-1] if lines else 'it said nothing'}"
    return f"{kind} in {where or 'code without lines'}"


_really_unlink: Final = os.unlink


def _unlink(path: Any, **options: Any) -> None:
    """Leave shared libraries to whoever removes the temporary folder."""
    if options.get("dir_fd") is not None or not str(path).endswith(".so"):  # a folder that goes takes all with it
        _really_unlink(path, **options)


def main(path: str) -> None:
    """Run the jobs of a file; print a line for each."""
    os.environ.pop("LD_PRELOAD", None)  # it is in this process; compilers are no business of a sanitizer's
    os.unlink = _unlink  # reports name lines of libraries that are still there
    asked: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    host: Target | None = None
    if asked["sanitizer"]:
        made: Any = type(_compiling())
        host = made(extra_flags=FLAGS[asked["sanitizer"]], headers=asked["headers"])
    for fields in asked["jobs"]:
        job = Job(**{**fields, "sizes": tuple(fields["sizes"])})
        said = _difference(job, host, asked["sanitizer"] == "address")
        print(f"differs {said}" if said else "clean ", flush=True)


def _difference(job: Job, host: Target | None, damaged: bool) -> str:
    """Return where a job's kernels, emulated or (host None) on a GPU, differ from the NumPy forms."""
    installed = {h.name: h for h in discovery.registry().harnesses()}
    if host is None:
        places = [Place("cuda", discovery.registry().target("cuda"), installed)]
    else:
        emulated = {name: EmulatedHarness(h, job.geometry) for name, h in installed.items()}
        places = [Place("emulated", EmulatedTarget(host), emulated)]
        if damaged:  # policies may have a form of their own for the host
            places.append(Place(host.name, host, installed))
    pipe = bq.Pipeline.from_toml(job.toml)
    reference = Place("numpy", None).executable(pipe.graph, job.dtype, "off")
    for place in places:
        run = place.executable(pipe.graph, job.dtype, "auto")
        said = _compared(job, reference, run, damaged)
        if not said and damaged and place.name != "emulated":  # few elements: most of the words is what is left over
            x = smooth(_FEW, job.dtype)
            said = _damaged(reference, run, forward(reference, x, job.bound), x, _OF_FEW)
        if said:
            return said
    return ""


def _compared(job: Job, reference: Executable, run: Executable, damaged: bool) -> str:
    bound = job.bound
    for n in job.sizes:
        for x in (special(n, job.dtype), ragged(n, job.dtype)):
            expected = forward(reference, x, bound)
            made = forward(run, x, bound)
            for port, value in expected.values.items():
                for a, b in zip(_arrays(value), _arrays(made.values[port]), strict=True):
                    if not same(a, b):
                        return f"{n} elements, {port[0]}.{port[1]}: {first_difference(a, b)}".replace("\n", " ")
            y, z = inverse(reference, expected, x), inverse(run, expected, x)
            if not same(y, z):
                return f"{n} elements, decompression: {first_difference(y, z)}".replace("\n", " ")
        if damaged and n == job.sizes[-1]:
            said = _damaged(reference, run, expected, x)
            if said:
                return f"{n} elements, {said}"
    return ""


def _damaged(reference: Any, run: Any, made: Run, x: Array, count: int = _MUTATIONS) -> str:
    """Decode mutated values of the ports, between buffers that the sanitizer watches: both refuse them, or both decode alike."""
    rng = np.random.default_rng(x.size)
    ports = [port for port, value in made.values.items() if isinstance(value, Chunked) and value.words.size]
    for _ in range(count if ports else 0):
        port = ports[int(rng.integers(len(ports)))]
        value: Any = made.values[port]
        words, sizes = np.array(value.words), np.array(value.sizes)
        at = int(rng.integers(min(words.size, 64) if rng.random() < 0.5 else words.size))
        held = words.view(np.uint8)
        held[4 * at + int(rng.integers(4))] = rng.choice([0, 1, 31, 33, 64, 255, int(rng.integers(256))])
        changed = Run(made.record, {**made.values, port: Chunked(sizes, words)})
        found = []
        for where in (reference, run):
            try:
                found.append(inverse(where, changed, x).tobytes())
            except ArchiveError:
                found.append(b"refused")
        if found[0] != found[1]:
            oracle, kernel = ("refuses it" if f == b"refused" else "decodes it" for f in found)
            return (
                f"word {at} of {port[0]}.{port[1]} damaged: the NumPy form {oracle}, the kernel {kernel}, differently if both do"
            )
    return ""


def _arrays(value: Any) -> list[Any]:
    return [value.sizes, value.words] if hasattr(value, "sizes") else [np.asarray(value)]


if __name__ == "__main__":
    main(sys.argv[1])

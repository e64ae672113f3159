"""The caller's floating-point environment and stack: neither changes a byte nor breaks the bound (design section 7)."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import briquette as bq
from briquette.discovery import registry
from briquette.errors import TargetUnavailable
from briquette.selection import choose_target

TARGETS = ("numpy", "host")
#: FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO of x86
MODES = {"downward": 0x400, "upward": 0x800, "toward zero": 0xC00}
pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets the x86 control registers")


def fields() -> list[tuple[np.ndarray[Any, Any], float, str]]:
    rng = np.random.default_rng(11)
    walk = np.cumsum(rng.standard_normal(9000))
    return [
        (walk.astype(np.float32), 1e-5, "rel"),
        (walk, 1e-9, "rel"),
        ((walk + 1e6).astype(np.float32), 0.04, "abs"),
        ((rng.standard_normal(9000) * 1.18e-38).astype(np.float32), 1e-3, "rel"),
        (rng.standard_normal(9000) * 2.3e-308, 1e-3, "rel"),
    ]


@pytest.fixture(params=[*MODES, "flush to zero"])
def changed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Run something with the thread's environment changed, and check that it is the same afterwards."""
    if request.param in MODES:
        libm = ctypes.CDLL(ctypes.util.find_library("m"))

        def run(work: Callable[[], Any]) -> Any:
            libm.fesetround(MODES[request.param])
            try:
                return work()
            finally:
                assert libm.fegetround() == MODES[request.param]
                libm.fesetround(0)

        yield run
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to set the register with")
    source = tmp_path / "flush.c"
    source.write_text(
        "#include <xmmintrin.h>\nvoid flush(int on) { unsigned c = _mm_getcsr(); _mm_setcsr(on ? c | 0x8040 : c & ~0x8040u); }\n"
        "int flushing(void) { return (_mm_getcsr() & 0x8040) == 0x8040; }\n"
    )
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", source, "-o", tmp_path / "flush.so"], check=True)
    library = ctypes.CDLL(str(tmp_path / "flush.so"))

    def run_flushing(work: Callable[[], Any]) -> Any:
        library.flush(1)
        try:
            return work()
        finally:
            assert library.flushing()
            library.flush(0)

    yield run_flushing


def usable(target: str) -> str:
    try:
        choose_target(target)
    except TargetUnavailable as exc:
        pytest.skip(str(exc))
    return target


@pytest.mark.parametrize("target", TARGETS)
def test_no_byte_depends_on_the_callers_environment(target: str, changed: Callable[[Callable[[], Any]], Any]) -> None:
    usable(target)
    for x, eb, mode in fields():
        blob = bytes(bq.compress(x, eb, mode, target=target))
        back = bq.decompress(blob, target=target)
        assert changed(lambda x=x, eb=eb, mode=mode: bytes(bq.compress(x, eb, mode, target=target))) == blob
        assert changed(lambda blob=blob: bq.decompress(blob, target=target)).tobytes() == back.tobytes()
        assert changed(lambda blob=blob, x=x: bq.verify(blob, x, target=target)).ok


@pytest.mark.parametrize("region", [4096, 65536])
def test_threads_with_small_stacks(region: int) -> None:
    usable("host")
    stage = registry().stage_class
    pipe = bq.chain(stage("linear-quantizer")(), stage("lorenzo-1d")(region), stage("plain-rate")(32))
    x = np.cumsum(np.random.default_rng(0).standard_normal(200_001))
    expected = bytes(bq.compress(x, 1e-3, pipeline=pipe, target="numpy"))
    pipe.compile("float64", target="host")
    made: list[Any] = []

    def work() -> None:
        made.append(bytes(bq.compress(x, 1e-3, pipeline=pipe, target="host", threads=1)))
        made.append(bq.decompress(expected, target="host", threads=1))

    before = threading.stack_size(256 << 10)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert made[0] == expected
    assert made[1].tobytes() == bq.decompress(expected, target="numpy").tobytes()

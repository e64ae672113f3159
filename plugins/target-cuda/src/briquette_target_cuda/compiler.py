"""NVRTC: architecture, options, and what the cache key is made of."""

from __future__ import annotations

import importlib.util
import io
import json
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from briquette import discovery
from briquette.cache import Cache, cache_key
from briquette.errors import CompileError
from briquette.sources import resolve_headers
from briquette.target import KernelSource

from . import driver

_OPTIONS: Final = ("std=c++17", "fma=False", "ftz=False", "prec_div=True", "prec_sqrt=True")


@lru_cache(maxsize=1)
def nvrtc() -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return NVRTC's version and the architectures it compiles for, such as 90."""
    from cuda.bindings import nvrtc as lib

    status, major, minor = lib.nvrtcVersion()
    if int(status):
        raise CompileError(f"NVRTC does not tell its version ({status.name})")
    status, count = lib.nvrtcGetNumSupportedArchs()
    status, archs = lib.nvrtcGetSupportedArchs()
    return (major, minor), tuple(sorted(int(a) for a in archs[:count]))


def known_to(cache: Cache) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Return what `nvrtc` returns, from `cache` where that holds it: loading NVRTC takes longer than all else of a first call.

    It is kept by the library's path, size and time, so that another NVRTC is asked anew. Where code is compiled it is the loaded
    NVRTC's version that names it, whatever was remembered.
    """
    library = _library()
    if library is None or nvrtc.cache_info().currsize:
        return nvrtc()
    key = cache_key({"nvrtc": library})
    found = cache.get(key)
    if found is not None:
        held = json.loads(found)
        return (held["version"][0], held["version"][1]), tuple(held["known"])
    version, known = nvrtc()
    cache.put(key, json.dumps({"version": version, "known": known}).encode())
    return version, known


def _library() -> tuple[str, ...] | None:
    """Return what tells the NVRTC of NVIDIA's wheel from others, without loading it; None where there is no such wheel."""
    try:
        import cuda.bindings

        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return None
    major = str(cuda.bindings.__version__).split(".")[0]
    for place in (spec and spec.submodule_search_locations) or ():
        for pattern in (f"*/lib/libnvrtc.so.{major}", f"*/bin/**/nvrtc64_{major}*_0.dll"):
            for path in sorted(Path(place).glob(pattern)):
                stat = path.stat()
                return str(path), str(stat.st_size), str(stat.st_mtime_ns)
    return None


def code_for(capability: tuple[int, int], known: tuple[int, ...]) -> tuple[str, str]:
    """Return (format, architecture) of code that runs on a device: its own cubin, else PTX of the newest known.

    Parameters
    ----------
    capability : (major, minor) of the device
    known : architectures NVRTC compiles for, ascending

    Raises
    ------
    CompileError
        Where every known architecture is newer than the device.
    """
    own = capability[0] * 10 + capability[1]
    if own in known:
        return "cubin", f"sm_{own}"
    older = [a for a in known if a < own]
    if not older:
        (major, minor), _ = nvrtc()
        raise CompileError(
            f"NVRTC {major}.{minor} compiles for sm_{known[0]} and newer, this device is sm_{own}: install an older NVRTC"
        )
    return "ptx", f"compute_{older[-1]}"


def compiled(source: KernelSource, capability: tuple[int, int], cache: Cache) -> bytes:
    """Return the code of `source` for a device, from the cache or from NVRTC.

    Raises
    ------
    CompileError
        With NVRTC's log, and the versions of NVRTC, driver and device.
    """
    begin = time.perf_counter()
    headers = resolve_headers(source)

    def named(version: tuple[int, int], known: tuple[int, ...]) -> tuple[str, str, str]:
        form, arch = code_for(capability, known)
        key = cache_key(
            {"source": source.text, "headers": headers.texts, "options": _OPTIONS, "nvrtc": version, "arch": arch, "form": form}
        )
        return key, form, arch

    key, form, arch = named(*known_to(cache))
    found = cache.get(key)
    if found is None:
        key, form, arch = named(*nvrtc())
        code = _compile(source, headers.texts, form, arch)
        cache.put(key, code)
    else:
        code = found
    discovery.hooks().compiled(
        source_name=source.name, target="cuda", seconds=time.perf_counter() - begin, cached=found is not None
    )
    return code


def _compile(source: KernelSource, headers: Mapping[str, str], form: str, arch: str) -> bytes:
    import tempfile

    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="briquette-") as directory:
        for name, text in headers.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        options = ProgramOptions(
            name=source.name,
            std="c++17",
            arch=arch,
            fma=False,
            ftz=False,
            prec_div=True,
            prec_sqrt=True,
            include_path=[directory],
        )
        try:
            return bytes(Program(source.text, "c++", options).compile(form, logs=log).code)
        except Exception as exc:  # cuda.core has no common class for what NVRTC says
            (major, minor), _ = nvrtc()
            version = driver.check(driver.bindings().cuDriverGetVersion())
            raise CompileError(
                f"{source.name} does not compile for {arch} (NVRTC {major}.{minor}, driver for CUDA "
                f"{version // 1000}.{version % 1000 // 10}): {_errors(str(exc) + log.getvalue(), directory)}"
            ) from exc


def _errors(log: str, directory: str) -> str:
    lines = [line.replace(f"{directory}/", "") for line in log.splitlines() if "error" in line.lower()]
    return "\n".join(lines[:12]) or log[-1000:]

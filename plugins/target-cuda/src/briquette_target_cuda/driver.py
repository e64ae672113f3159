"""The few driver calls the target makes, checked; nothing here is imported before a GPU is asked for."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from types import ModuleType
from typing import Any

from briquette.errors import BriquetteError, TargetUnavailable


class DeviceError(BriquetteError):
    """A CUDA call failed; names the call and the driver's word for it."""


@lru_cache(maxsize=1)
def bindings() -> ModuleType:
    """Return ``cuda.bindings.driver``, initialized; raise `TargetUnavailable` where that cannot be."""
    why = missing()
    if why is not None:
        raise TargetUnavailable(f"target 'cuda' cannot run: {why}")
    import cuda.bindings.driver as driver

    return driver


@lru_cache(maxsize=1)
def missing() -> str | None:
    """Return in one line what the target lacks here, or None."""
    other = _namesake()
    if other is not None:
        return other
    try:
        import cuda.bindings.driver as driver
        import cuda.core  # noqa: F401
    except (Exception, SystemExit) as exc:  # a major that does not match, a broken install
        return f"the CUDA packages do not load ({exc}); pip install 'briquette-target-cuda[cuda13]' (or [cuda12])"
    try:
        (status,) = driver.cuInit(0)
        if int(status):
            return f"the CUDA driver does not start ({status.name})"
        status, count = driver.cuDeviceGetCount()
    except Exception as exc:  # cuda.bindings raises where there is no driver library
        return f"there is no CUDA driver ({exc})"
    return None if not int(status) and count > 0 else "the CUDA driver finds no GPU"


def _namesake() -> str | None:
    """Return what stands in the place of NVIDIA's package, a local ``cuda.py`` say, without running it; or None."""
    try:
        spec = importlib.util.find_spec("cuda")
    except (ImportError, ValueError):  # a module made by hand, without a spec
        spec = None
    if spec is None:
        return "the CUDA packages are not installed; pip install 'briquette-target-cuda[cuda13]' (or [cuda12])"
    if spec.submodule_search_locations is None:
        return f"{spec.origin} hides the CUDA packages, which are called cuda too; rename it"
    return None


def check(answer: tuple[Any, ...]) -> Any:
    """Return what a driver call gave, without its status; raise `DeviceError` where that is not success."""
    status, *values = answer
    if int(status):
        _, text = bindings().cuGetErrorString(status)
        raise DeviceError(f"the CUDA driver answers {status.name}: {text.decode() if text else 'no text'}")
    return values[0] if len(values) == 1 else tuple(values) if values else None


@lru_cache(maxsize=64)
def primary_context(device: int) -> Any:
    """Return the primary context of a device, which the frameworks share; it is kept for the process's life."""
    driver = bindings()
    handle = check(driver.cuDeviceGet(device))
    context = check(driver.cuDevicePrimaryCtxRetain(handle))
    # freed memory stays with the pool: giving it back to the driver between calls costs milliseconds
    status, pool = driver.cuDeviceGetDefaultMemPool(handle)
    if not int(status):
        which = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        driver.cuMemPoolSetAttribute(pool, which, driver.cuuint64_t(2**64 - 1))
    return context


class current:  # noqa: N801  a context manager, read as a function; a class costs a call less than a generator
    """Make the device's context current in this thread, and bring the caller's back afterwards."""

    __slots__ = ("_device",)

    def __init__(self, device: int) -> None:
        self._device = device

    def __enter__(self) -> None:
        check(bindings().cuCtxPushCurrent(primary_context(self._device)))

    def __exit__(self, *error: object) -> None:
        check(bindings().cuCtxPopCurrent())


@lru_cache(maxsize=64)
def attribute(device: int, name: str) -> int:
    """Return a device attribute by its CUDA name, without the prefix."""
    which = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(bindings().cuDeviceGetAttribute(which, check(bindings().cuDeviceGet(device)))))


def capability(device: int) -> tuple[int, int]:
    return attribute(device, "COMPUTE_CAPABILITY_MAJOR"), attribute(device, "COMPUTE_CAPABILITY_MINOR")

"""The few driver calls the target makes, checked; nothing here is imported before a GPU is asked for."""

from __future__ import annotations

import importlib.util
import warnings
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from briquette.errors import BriquetteError, TargetUnavailable

#: what is said of a device on which allocating waits
NO_POOLS: Final = "no memory pools: every buffer is allocated by itself, and freeing one waits for the device"


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

        if importlib.util.find_spec("cuda.core") is None:  # imported where something is compiled: that takes a while
            raise ImportError("there is no cuda.core")
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
    if answer[0]:
        raise _failed(answer[0])
    return answer[1] if len(answer) == 2 else answer[1:] or None


def _failed(status: Any) -> DeviceError:
    _, text = bindings().cuGetErrorString(status)
    return DeviceError(f"the CUDA driver answers {status.name}: {text.decode() if text else 'no text'}")


@lru_cache(maxsize=64)
def primary_context(device: int) -> Any:
    """Return the primary context of a device, which the frameworks share; it is kept for the process's life."""
    driver = bindings()
    handle = check(driver.cuDeviceGet(device))
    context = check(driver.cuDevicePrimaryCtxRetain(handle))
    if has_pools(device):
        # freed memory stays with the pool: giving it back to the driver between calls costs milliseconds
        status, pool = driver.cuDeviceGetDefaultMemPool(handle)
        if not status:
            which = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            driver.cuMemPoolSetAttribute(pool, which, driver.cuuint64_t(2**64 - 1))
    return context


@lru_cache(maxsize=64)
def _handle(device: int) -> int:
    return int(primary_context(device))


def is_current(device: int) -> bool:
    """Whether the device's primary context is this thread's current one."""
    return int(check(bindings().cuCtxGetCurrent())) == _handle(device)


class current:  # noqa: N801  a context manager, read as a function; a class costs a call less than a generator
    """Make the device's context current in this thread, and bring the caller's back afterwards.

    Where it is current already, as the frameworks have it, that is one call instead of two.
    """

    __slots__ = ("_device", "_pushed")

    def __init__(self, device: int) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._pushed = not is_current(self._device)
        if self._pushed:
            check(bindings().cuCtxPushCurrent(primary_context(self._device)))

    def __exit__(self, *error: object) -> None:
        if self._pushed:
            check(bindings().cuCtxPopCurrent())


@lru_cache(maxsize=1024)
def stream(handle: int) -> Any:
    """Return a stream's handle as the bindings want it: made anew in every call it costs as much as the call."""
    return bindings().CUstream(handle)


@lru_cache(maxsize=64)
def attribute(device: int, name: str) -> int:
    """Return a device attribute by its CUDA name, without the prefix."""
    which = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(check(bindings().cuDeviceGetAttribute(which, check(bindings().cuDeviceGet(device)))))


@lru_cache(maxsize=64)
def has_pools(device: int) -> bool:
    """Whether memory can be allocated and freed in the order of a stream: some virtual GPUs and systems have no pools for it."""
    try:
        found = bool(attribute(device, "MEMORY_POOLS_SUPPORTED"))
    except DeviceError:  # a driver that does not know the question
        found = False
    if not found:
        warnings.warn(f"CUDA device {device} has {NO_POOLS}", RuntimeWarning, stacklevel=2)
    return found


def capability(device: int) -> tuple[int, int]:
    return attribute(device, "COMPUTE_CAPABILITY_MAJOR"), attribute(device, "COMPUTE_CAPABILITY_MINOR")

"""briquette: error-bounded compression of scientific arrays, as a DAG of plug-in stages.

A stage declares its fused identity; a planner matches declarations by role; a runner composes one kernel from the
device policies they name. Everything but this core is a plug-in found through entry points.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .api import (
        CompressResult,
        DecompressResult,
        VerifyReport,
        compress,
        compress_run,
        decompress,
        decompress_run,
        info,
        verify,
    )
    from .archived import max_archive_bytes
    from .declare import FusedOp, FusionAccess, FusionSpec
    from .errors import BriquetteError
    from .on_device import DeviceArchive, compress_on_device
    from .params import ParamStruct
    from .pipeline import Pipeline, chain
    from .plan import Plan
    from .ports import Chunked, PortType
    from .record import Bound, RunRecord
    from .stage import Stage

    __version__: str

# name -> module that defines it; loaded on first use, so that importing briquette costs next to nothing
_LAZY: Final = {
    name: module
    for module, names in {
        "api": "CompressResult DecompressResult VerifyReport compress compress_run decompress decompress_run info verify",
        "archived": "max_archive_bytes",
        "declare": "FusedOp FusionAccess FusionSpec",
        "errors": "BriquetteError",
        "on_device": "DeviceArchive compress_on_device",
        "params": "ParamStruct",
        "pipeline": "Pipeline chain",
        "plan": "Plan",
        "ports": "Chunked PortType",
        "record": "Bound RunRecord",
        "stage": "Stage",
    }.items()
    for name in names.split()
}

__all__ = [
    "Bound",
    "BriquetteError",
    "Chunked",
    "CompressResult",
    "DecompressResult",
    "DeviceArchive",
    "FusedOp",
    "FusionAccess",
    "FusionSpec",
    "ParamStruct",
    "Pipeline",
    "Plan",
    "PortType",
    "RunRecord",
    "Stage",
    "VerifyReport",
    "__version__",
    "chain",
    "compress",
    "compress_on_device",
    "compress_run",
    "decompress",
    "decompress_run",
    "info",
    "max_archive_bytes",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from ._folders import core_version

        return core_version()
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'briquette' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

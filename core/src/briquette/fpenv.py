"""IEEE arithmetic whatever the calling thread has set: nearest rounding, denormals kept.

Libraries built with fast-math switch denormals off for the thread that loads them, and some numerical codes change the
rounding direction. The guarantee must hold in either, so calls that compute set the default environment and bring the
caller's back (ISO C ``fegetenv`` and ``fesetenv``).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

#: more than any platform's fenv_t
_Environment: Final = ctypes.c_char * 512
#: FE_DFL_ENV of glibc, musl and bionic
_DEFAULT: Final = ctypes.c_void_p(-1)


@functools.lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any] | None:
    """Return fegetenv and fesetenv, or None where the C library has none we know how to call."""
    for find in (lambda: None, _mathematics):  # the interpreter itself has them nearly everywhere
        try:
            library = ctypes.CDLL(find())
            save, load = library.fegetenv, library.fesetenv
        except (OSError, AttributeError, TypeError):  # TypeError: where None stands for no library
            continue
        save.argtypes = load.argtypes = (ctypes.c_void_p,)
        return save, load
    return None


def _mathematics() -> str:
    from ctypes.util import find_library  # it starts processes

    return find_library("m") or "libm.so.6"


def in_ieee(function: F) -> F:
    """Make `function` compute in the default floating-point environment."""

    @functools.wraps(function)
    def guarded(*args: Any, **options: Any) -> Any:
        functions = _functions()
        if functions is None:
            return function(*args, **options)
        save, load = functions
        before = _Environment()
        save(before)
        load(_DEFAULT)
        try:
            return function(*args, **options)
        finally:
            load(before)

    return cast(F, guarded)

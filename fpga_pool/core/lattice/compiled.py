"""Compiles loops where numba is installed (extra `fast`); elsewhere the same functions run as they are written."""

from collections.abc import Callable
from typing import Any

_Function = Callable[..., Any]


def compiled(signature: str) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function for these types when its module is imported (cached on disk)."""

    def decorate(function: _Function) -> _Function:
        try:
            from numba import njit

            done: _Function = njit(signature, cache=True)(function)
        except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
            return function
        return done

    return decorate

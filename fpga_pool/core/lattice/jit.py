"""Compiles loops at their first call where numba is installed (extra `fast`); elsewhere they run as they are written.

Unlike those of `compiled` they take tuples of many arrays, whose types nobody wants to write down.
"""

from collections.abc import Callable
from typing import Any

_Function = Callable[..., Any]


def compiled(function: _Function) -> _Function:
    """Return a function that Python calls, compiled; itself where there is no numba or no place for its cache."""
    return _compiled(function)


def inner(function: _Function) -> _Function:
    """Return a function that only compiled ones call: without what Python needs to call it, it compiles much sooner."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: _Function, **options: Any) -> _Function:
    try:
        from numba import njit

        done: _Function = njit(cache=True, error_model="numpy", **options)(function)
    except (ImportError, RuntimeError):
        return function
    return done

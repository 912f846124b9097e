"""Compiles loops at their first call where numba is installed (extra `fast`); elsewhere they run as they are written.

Unlike those of `compiled` they take tuples of many arrays, whose types nobody wants to write down.
"""

from collections.abc import Callable
from typing import Any, TypeVar

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


def compiled(function: _FunctionT) -> _FunctionT:
    """Return a function that Python calls, compiled; itself where there is no numba or no place for its cache."""
    return _compiled(function)


def inner(function: _FunctionT) -> _FunctionT:
    """Return a function that only compiled ones call: without what Python needs to call it, it compiles much sooner."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: _FunctionT, **options: bool) -> _FunctionT:
    try:
        from numba import njit

        return njit(cache=True, error_model="numpy", **options)(function)  # type: ignore[no-any-return]
    except (ImportError, RuntimeError):
        return function

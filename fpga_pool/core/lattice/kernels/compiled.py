"""Compiles loops where numba is installed (extra `fast`); elsewhere the same functions run as they are written."""

from collections.abc import Callable
from typing import Any

_Function = Callable[..., Any]


def compiled(signature: str) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function for these types when its module is imported (cached on disk)."""
    return lambda function: _compiled(function, signature)


def at_first_call(function: _Function) -> _Function:
    """Compile a function when Python first calls it: for tuples of many arrays, tedious to declare."""
    return _compiled(function, error_model="numpy")


def inner(function: _Function) -> _Function:
    """Do so with one that only compiled ones call: without what Python needs to call it, it compiles much sooner."""
    return _compiled(function, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


def _compiled(function: _Function, signature: str | None = None, **options: Any) -> _Function:
    try:
        from numba import njit

        done: _Function = njit(signature, cache=True, **options)(function)
    except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
        return function
    return done

"""Compiles loops if numba is installed (extra `fast`); otherwise Python runs them, about 100 times slower.

Loops live in separate modules that are imported where they are first called.  Importing one loads numba, and compiles
the functions that have a signature or loads them from the cache of an earlier run.  Callers need not distinguish these
cases.
"""

from collections.abc import Callable
from typing import Any

_Function = Callable[..., Any]


def compiled(signature: str | None = None, *, inner: bool = False, **options: Any) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function and keeps the result on disk.

    With a `signature` of types it compiles at import; without one, at the first call, which suits tuples of many
    arrays.  `inner` marks a function that only compiled functions call: it gets no wrappers for calls from Python, so
    it compiles much faster.  Further options are those of `numba.njit`.
    """
    if inner:
        options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def compile_it(function: _Function) -> _Function:
        try:
            from numba import njit
        except ImportError:
            return function
        try:
            done: _Function = njit(signature, cache=True, error_model="numpy", **options)(function)
        except RuntimeError:  # numba finds no writable cache directory, so each process compiles
            done = njit(signature, error_model="numpy", **options)(function)
        return done

    return compile_it

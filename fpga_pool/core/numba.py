"""Compiles loops where numba is installed (extra `fast`); elsewhere Python runs them, about 100 times slower.

Loops live in modules of their own, which are imported where they are first called: importing them loads numba, and
compiles what has a signature or loads it from the cache of an earlier run.  A caller never has to know which.
"""

from collections.abc import Callable
from typing import Any

_Function = Callable[..., Any]


def compiled(signature: str | None = None, *, inner: bool = False, **options: Any) -> Callable[[_Function], _Function]:
    """Return a decorator that compiles a function and keeps the result on disk.

    With a `signature` of types it compiles at import; without, at the first call, for tuples of many arrays.  What is
    `inner` only compiled functions call: without what Python needs for that, it compiles much sooner.  Further options
    are those of `numba.njit`.
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
        except RuntimeError:  # no directory where numba may keep the result: each process compiles
            done = njit(signature, error_model="numpy", **options)(function)
        return done

    return compile_it

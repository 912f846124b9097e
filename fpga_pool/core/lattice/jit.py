"""One source for compiled and for plain loops: numba where it is installed (extra `fast`), else Python as it stands.

Without numba a search does the same, about a hundred times more slowly.
"""

from collections.abc import Callable
from typing import Any, TypeVar

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


def compiled(function: _FunctionT) -> _FunctionT:
    """Return `function` compiled at its first call, or itself where there is no numba or no place for its cache."""
    try:
        from numba import njit

        return njit(cache=True)(function)  # type: ignore[no-any-return]
    except (ImportError, RuntimeError):
        return function

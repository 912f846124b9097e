"""The scans: compiled where numba is installed (extra `fast`), else in numpy."""

from functools import cache
from types import ModuleType

from fpga_pool.core.gangs import scans


class _Choice:
    """What this process wants."""

    compiled = True


@cache
def fastest() -> ModuleType:
    """Return the module with the scans; the first call loads or compiles them."""
    if not _Choice.compiled:
        return scans
    try:
        from fpga_pool.core.gangs import kernels
    except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
        return scans
    return kernels


def do_not_compile() -> None:
    """Use the scans in numpy in this process from now on.

    A service that decides about some dozens of gangs at a time saves less by compiled ones than loading them takes,
    seconds in which it answers nobody.
    """
    _Choice.compiled = False
    fastest.cache_clear()

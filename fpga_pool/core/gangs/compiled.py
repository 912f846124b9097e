"""The scans: compiled where numba is installed (extra `fast`), else in numpy."""

from functools import cache
from types import ModuleType

from fpga_pool.core.gangs import scans


@cache
def fastest() -> ModuleType:
    """Return the module with the scans; the first call loads or compiles them."""
    try:
        from fpga_pool.core.gangs import kernels
    except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
        return scans
    return kernels

"""The compiled kernels, where numba is installed (extra `fast`)."""

from functools import cache
from types import ModuleType


@cache
def kernels() -> ModuleType | None:
    """Return the compiled loops over machines, or None without numba; the first call loads or compiles them."""
    try:
        from fpga_pool.core.makespan import kernels as module
    except ImportError:
        return None
    return module


@cache
def joint_kernels() -> ModuleType | None:
    """Return the compiled loops over machines and links, or None without numba."""
    try:
        from fpga_pool.core.makespan import joint_kernels as module
    except ImportError:
        return None
    return module


def compile_all() -> None:
    """Load or compile all kernels now, so that no plan has to wait for it."""
    kernels()
    joint_kernels()

"""The scans compiled by numba, where it is installed (extra `fast`)."""

from types import ModuleType

from fpga_pool.core.gangs import scans


def compiled_scans() -> ModuleType:
    """Return the compiled scans, or, without numba, those in numpy; both find the same.

    The first call of a process takes a second or two, on a machine ten: more than a service saves that decides about
    some dozens of gangs at a time.
    """
    try:
        from fpga_pool.core.gangs import kernels
    except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
        return scans
    return kernels

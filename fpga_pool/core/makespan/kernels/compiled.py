"""Selects the inner loops of the planners: by numba where it is installed (extra `fast`), or numpy and Python."""

from dataclasses import dataclass
from enum import Enum
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Loops:
    """The compiled loops; functions that may use them get None in place of it where numpy does the work."""

    #: Over machines.
    kernels: ModuleType
    #: Over machines and links.
    joint: ModuleType
    #: The local search in reversed time.
    local_search: ModuleType


class Kernels(Enum):
    """Which loops a policy uses: part of its value, so that no decision depends on what happens to be compiled yet."""

    COMPILED = "compiled"
    PLAIN = "plain"

    def load(self) -> Loops | None:
        """Return the loops; None where these are plain, where numba is not installed, or where it has no cache.

        The first call of a process takes a second or two, on a machine half a minute.
        """
        if self is Kernels.PLAIN:
            return None
        try:
            from fpga_pool.core.makespan.kernels import joint as joint_kernels
            from fpga_pool.core.makespan.kernels import local_search as local_search_kernels
            from fpga_pool.core.makespan.kernels import loops as kernels
        except (ImportError, RuntimeError):  # no numba, or no place where it may keep what it compiled
            return None
        return Loops(kernels, joint_kernels, local_search_kernels)

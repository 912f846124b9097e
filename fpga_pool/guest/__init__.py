"""Use of the accelerators of an instance, from inside it.

Nothing here needs more than the standard library of Python 3.6, and nothing imports the rest of fpga_pool: a guest
needs this directory only.
"""

from fpga_pool.guest.accelerator import Accelerator, NoAccelerator, RequestFailed, find

__all__ = ["Accelerator", "NoAccelerator", "RequestFailed", "find"]

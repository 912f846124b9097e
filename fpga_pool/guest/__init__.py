"""Access to the accelerators of an instance from inside it.

This package needs only the standard library of Python 3.6 and imports nothing else of fpga_pool, so a guest needs this
directory only.
"""

from fpga_pool.guest.accelerator import Accelerator, NoAccelerator, RequestFailed, find

__all__ = ["Accelerator", "NoAccelerator", "RequestFailed", "find"]

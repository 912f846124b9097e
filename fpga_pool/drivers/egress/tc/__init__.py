"""Egress limits by the kernel's traffic control, for senders that this process does not own.

`driver` is the interface to one device, `router` to all devices of a host.  Below them: `shaping` (rates), `places`
(numbers), `attachment` (where the queue is) and `observe` (what the kernel has).  `attach` and `install` change the
kernel; only `fpga_pool.drivers.privileged` calls them.
"""

"""Egress limits by the kernel's traffic control, for senders that this process does not own.

`driver` is the interface to one device, `router` to all devices of a host.  Below them: `shaping` (rates), `places`
(numbers), `attachment` (where the queue is), `observe` (what the kernel has), and what needs privileges, called by
`fpga_pool.drivers.privileged` alone: `attach` and `install`, on `messages` and `netlink`.
"""

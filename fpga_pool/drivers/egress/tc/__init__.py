"""Egress limits by the kernel's traffic control (tc), for senders in other processes or in guests."""

"""Egress limits by the kernel's traffic control, for senders that this process does not own."""

"""Instances of a host that use its slots, from the hypervisor's request before they start until they end."""

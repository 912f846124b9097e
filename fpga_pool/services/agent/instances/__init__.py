"""Instances of a host that use its slots, from the hypervisor's question before they start to their end."""

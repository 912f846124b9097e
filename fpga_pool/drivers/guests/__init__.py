"""Drivers of the virtual machines of a host: what connects a guest with the slots that are kept for its instance."""

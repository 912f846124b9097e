"""Drivers of guests, which connect a guest with the slots that its instance holds."""

"""Drivers of guests: they connect a guest with the slots that are held for its instance."""

"""Re-planning, and batches that arrive while others are under way."""

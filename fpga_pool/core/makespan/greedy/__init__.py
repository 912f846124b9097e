"""Plans made in one pass: placement, list scheduling, execution."""

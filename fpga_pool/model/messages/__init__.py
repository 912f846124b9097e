"""What the pool's processes exchange, as plain data."""

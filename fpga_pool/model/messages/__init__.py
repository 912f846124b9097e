"""Messages between the pool's services, as plain data."""

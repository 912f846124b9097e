"""Tasks on several linked slots."""

"""Plans of work that nobody has created."""

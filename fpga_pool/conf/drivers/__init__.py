"""Options of drivers, a group each."""

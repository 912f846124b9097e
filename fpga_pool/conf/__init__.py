"""Configuration: the options of operators, read into validated values."""

"""Configuration: what operators write, read into validated values."""

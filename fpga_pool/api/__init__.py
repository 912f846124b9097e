"""The REST API of the pool."""

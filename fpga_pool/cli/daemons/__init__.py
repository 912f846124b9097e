"""The service processes."""

"""The REST API, a module per kind of object."""

"""One file per revision of the schema, in their order."""

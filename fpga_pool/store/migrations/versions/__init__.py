"""One module per revision of the schema, in their order."""

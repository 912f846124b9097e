"""Migrations of the schema; run by `store.migrations.schema`."""

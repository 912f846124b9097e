"""Rules that all families share: changes of objects, reports, reconciliation, columns, shards."""

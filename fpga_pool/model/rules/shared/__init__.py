"""Rules shared by all families: changes of objects, reports, reconciliation, columns and shards."""

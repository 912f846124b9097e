"""L2: the metrics of the services for Prometheus: their table, and the only importer of prometheus_client."""

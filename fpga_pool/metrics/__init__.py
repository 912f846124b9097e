"""L2: the Prometheus metrics of the services: their table, and the only importer of prometheus_client."""

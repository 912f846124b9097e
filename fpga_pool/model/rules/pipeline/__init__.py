"""Rules of pipelines: batches whose jobs depend on each other."""

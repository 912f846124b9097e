"""Rules of the pool, by family of work: how requests, reports, heartbeats and ticks change the stored objects."""

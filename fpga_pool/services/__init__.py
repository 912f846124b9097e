"""L3: the services: I/O, threads and clocks around the rules of the pool."""

"""L3: the services, which add I/O, threads and clocks to the rules of the pool."""

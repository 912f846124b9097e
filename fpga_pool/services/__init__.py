"""L3: the processes; I/O, threads and clocks around the rules of the pool."""

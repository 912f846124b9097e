"""The compute-node agent: it executes commands on slots, serves the data port, and reports what it observes."""

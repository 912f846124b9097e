"""The compute-node agent: executes commands on slots, serves the data port, tells what it observes."""

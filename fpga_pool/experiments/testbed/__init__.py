"""The testbed of the makespan paper, section 5.1, on one machine: real agents, real TCP, real tc."""

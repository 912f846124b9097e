"""The testbed of paper 000, section 5.1, on one machine: real agents, real TCP, real tc."""

"""`fpga-pool`: the users' commands."""

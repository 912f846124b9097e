"""`fpga-pool batch`."""

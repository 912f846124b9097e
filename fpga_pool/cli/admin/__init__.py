"""`fpga-pool-manage`: the operator's commands."""

"""`fpga-pool-sim`: plans, simulations and experiments without a cloud."""

"""`fpga-pool pool`: the whole pool at a glance."""

"""`fpga-pool plan`, and how plans are shown."""

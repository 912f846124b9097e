"""`fpga-pool-learn`: train and evaluate the policy `learned`."""

import fpga_pool.rpc  # noqa: F401  # chooses native threads before a test imports oslo.messaging

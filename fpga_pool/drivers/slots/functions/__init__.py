"""Software models of the accelerator functions: they really compute, so a simulated slot gives correct results.

Each is named by an entry point of the group `fpga_pool.function_models`.
"""

"""fpga_pool: FPGA cards of an OpenStack cloud as one shared pool."""

"""Entry point of `python3 -m fpga_pool.guest`, for guests in which the tool is not installed."""

import sys

from fpga_pool.guest.tool import main

sys.exit(main())

"""`python3 -m fpga_pool.guest`, where the tool itself is not installed."""

import sys

from fpga_pool.guest.tool import main

sys.exit(main())

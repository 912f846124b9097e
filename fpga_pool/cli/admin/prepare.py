"""`fpga-pool-manage prepare`: compiles the loops of policies before a service needs them."""

import argparse
import time
from importlib.util import find_spec

from fpga_pool.cli.admin.base import ManageCommand
from fpga_pool.conf.policies import compile_loops, policy_names
from fpga_pool.model.exceptions import InvalidInput

#: The families that services plan.
FAMILIES = ("batch", "online", "gang", "task")


class Prepare(ManageCommand):
    """Compile the loops of all policies, so that no service waits for that; run as the user of the services."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Compile what the cache lacks."""
        if find_spec("numba") is None:
            raise InvalidInput("numba is not installed (extra fast): there is nothing to compile")
        began_s = time.monotonic()
        for family in FAMILIES:
            for name in policy_names(family):
                compile_loops(family, name)
        self.print_line(f"compiled loops are ready after {time.monotonic() - began_s:.1f} s")

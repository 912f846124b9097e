"""`fpga-pool-manage audit`: whether the database is consistent."""

import argparse

from fpga_pool.cmd.base import FAILED
from fpga_pool.cmd.manage_base import ManageCommand
from fpga_pool.services.audit import audit


class Audit(ManageCommand):
    """Hold the database against the rules of the pool, while it runs or not; exit status 1 if something is wrong."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Add what may be asked for."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--idle", action="store_true", help="all work has ended: tell also what is still under way")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Look, and tell what was found."""
        with self.store() as store:
            store.check_schema()
            findings = audit(store, idle=parsed_args.idle)
        for finding in findings:
            self.tell(finding)
        if not findings:
            self.tell("nothing is wrong")
        return FAILED if findings else 0

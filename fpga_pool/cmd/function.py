"""`fpga-pool function`: what the pool can compute, and how fast."""

import argparse

from fpga_pool.cmd.base import Number, PoolLister, Table, Words


class List(PoolLister):
    """List the catalogue."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        columns = ("name", "version", "slot_kinds", "slots", "speedup", "io_bps", "preemptible")
        return columns, [
            (
                info.name,
                info.version,
                Words(info.slot_kinds),
                info.slots,
                Number(info.speedup),
                Number(info.io_bps),
                info.preemptible,
            )
            for info in self.client.functions()
        ]


class Calibrate(PoolLister):
    """Show how well the time models fit the runs that were observed."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the options."""
        parser = super().get_parser(prog_name)
        parser.add_argument("function", nargs="?", metavar="FUNCTION", help="only this one (default: all)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Ask and show."""
        columns = (
            "function", "board", "runs", "catalogue_a_s", "catalogue_b_s_per_byte", "fitted_a_s", "fitted_b_s_per_byte",
            "mean_relative_error", "worst_relative_error",
        )  # fmt: skip
        return columns, [
            (
                fit.function,
                fit.board,
                fit.runs,
                Number(fit.catalogue_a_s),
                Number(fit.catalogue_b_s_per_byte),
                Number(fit.fitted_a_s),
                Number(fit.fitted_b_s_per_byte),
                Number(fit.mean_relative_error),
                Number(fit.worst_relative_error),
            )
            for fit in self.client.calibration(parsed_args.function)
        ]
